"""Tokenised text on disk: shards, written whole or in parts by many, and read as one."""
