"""Text -> Megatron's .bin/.idx, and what is in such a pair."""
