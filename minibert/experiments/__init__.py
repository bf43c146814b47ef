"""The paper's tables, each at a declared scale."""
