# Megatron compiles its dataset helpers into this folder; here there is nothing to compile.
