"""Texts that try to run, to break out of where they stand, or to command a terminal."""

import unicodedata

RUNS = "window.hacked++"  # undefined before; without =, which Markdown takes for no attribute
TEXTS = (
    f"<script>{RUNS}</script>",
    f"</script><script>{RUNS}</script>",
    f"</style></title></textarea></pre><svg onload={RUNS}>",
    f'"><img src=x onerror={RUNS}>',
    f"'><img src=x onerror={RUNS}>",
    f"' autofocus onfocus={RUNS} x='",
    f"--><iframe srcdoc='<script>parent.{RUNS}</script>'></iframe><!--",
    f"]]><script>{RUNS}</script>",
    f"javascript:{RUNS}",
    f"[a](javascript:{RUNS}) ![b](https://x.invalid/y.png) `` ` `` **c** # d | e",
    "${" + RUNS + "} {{" + RUNS + "}} {%raw%} #{1}",
    "=HYPERLINK(1) &lt;&#60;&amp;",
    "\u202egnp.exe\u202d\u2066\u2028\u2029\u200f\ufeff",
    "\x1b[31m\x1b]0;taken\x07\x1b[2J\x9b1m",
    "a\0b\r\nc\td\x7f\x85",
    "\ud800",
    "__proto__",
    "http://x.invalid/",
)
# Of a folder or a file: everything but what no file system takes.
NAME = f"\"><img src=x onerror={RUNS}> '&lt;\x1b[31m\u202e`[a](b)`"


def controls(text: str) -> list[str]:
    """The characters of a text that command a terminal, reorder it or can't be seen, beside line ends."""
    strange = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return sorted({one for one in text if one not in "\n\t" and unicodedata.category(one) in strange})
