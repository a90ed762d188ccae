"""A launch script in bash -> a configuration: read and evaluated, never executed.

    script -(syntax)-> tree -(interpreter)-> Launch -(flags)-> Flag list -(config_keys)-> YAML

Text is handled as Latin-1, one character a byte, so that offsets of the tree fit; `decode` turns
values back. Nothing here opens a file, starts a process or looks at the environment.
"""
