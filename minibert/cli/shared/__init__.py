"""What the commands share: their parser, flags that several have, texts that they read."""
