"""Does data-parallel Megatron-LM training scale on this machine, and if not, why?"""

__version__ = "0.1.0"
