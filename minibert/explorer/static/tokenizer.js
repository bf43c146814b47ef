"use strict";
// Text to WordPiece ids, as minibert/tokenizer has it: words (normalize.py), then pieces (greedy.py).
//
// What a character is stands in the page's tables, which are the product's, of one version of Unicode. Nothing
// that the browser itself knows of characters takes part: browsers differ.
//
// A placed character is {character, begin, end}: a code point on its way, and the UTF-16 units of the text that
// it comes from. Chunks and words are arrays of them.

const SYLLABLES = 0xac00; // Hangul: 19 leading consonants, 21 vowels, 27 trailing consonants or none
const JAMO = { leading: 0x1100, vowel: 0x1161, trailing: 0x11a7 };
const N_JAMO = { leading: 19, vowel: 21, trailing: 28 };

class Tokenizer {
  // data: the page's, of which `vocabulary` and `tokenizer` are read
  constructor(data) {
    this.vocabulary = data.vocabulary;
    this.options = data.tokenizer;
    const numbered = data.vocabulary.map((piece, id) => [piece, id]);
    const unmatched = new Set(this.options.unmatched);
    this.ids = new Map(numbered); // of equal pieces the last
    this.matching = new Map(numbered.filter(([, id]) => !unmatched.has(id))); // that words are cut into
    this.longest = data.vocabulary.reduce((most, piece) => Math.max(most, [...piece].length), 0);
    this.special = new Set(this.options.special);
    this.neverSplit = new Set(this.options.never_split);
    const never = "[^\\s\\S]"; // where no string is found whole
    this.specialInText = new RegExp(`(${this.options.special.map(escaped).join("|") || never})`);
    this.characters = new Characters(data.tokenizer);
  }

  // [CLS] A [SEP], or [CLS] A [SEP] B [SEP], of at most `limit` pieces
  // -> ids types pieces spans (n), words, and how many pieces were cut
  encode(a, b = null, limit = Infinity) {
    const sides = (b === null ? [a] : [a, b]).map((text, side) => this.words(text, side));
    const counts = sides.map((words) => words.reduce((sum, word) => sum + word.found.length, 0));
    const kept = this.shares(counts, Math.max(0, limit - 1 - sides.length));
    const encoded = { ids: [], types: [], pieces: [], spans: [], words: [], cut: 0 };
    this.push(encoded, "[CLS]", 0);
    sides.forEach((words, side) => {
      let left = kept[side];
      for (const { found, ...word } of words) {
        if (left <= 0) break;
        const shown = found.slice(0, left);
        left -= shown.length;
        encoded.words.push({ ...word, pieces: shown.map(({ piece, span }) => this.push(encoded, piece, side, span)) });
      }
      encoded.cut += counts[side] - kept[side];
      this.push(encoded, "[SEP]", side);
    });
    return encoded;
  }

  // Append a piece; return its position.
  push(encoded, piece, side, span = null) {
    encoded.types.push(side);
    encoded.pieces.push(piece);
    encoded.spans.push(span);
    return encoded.ids.push(this.ids.get(piece)) - 1;
  }

  // How many pieces of each text stay: from the longer one they go first, the second of equally long ones.
  shares([first, second], room) {
    if (second === undefined) return [Math.min(first, room)];
    const odd = room % 2 && (first > second || !this.options.odd_to_longer) ? 1 : 0;
    const kept = Math.min(first, Math.max(Math.floor(room / 2) + odd, room - second));
    return [kept, Math.min(second, room - kept)];
  }

  // -> [{text, begin, end, side, tried: [{begin, end, found}], found: [{piece, span}]}]
  words(text, side) {
    const words = [];
    let begin = 0;
    for (const part of text.split(this.specialInText)) {
      const aligned = this.special.has(part)
        ? [{ word: place(part, begin), whole: true }]
        : this.characters.align(part, begin, this.neverSplit);
      for (const { word, whole } of aligned) {
        const [first, last] = span(word);
        words.push({ begin: first, end: last, side, ...this.match(word, whole) });
      }
      begin += part.length;
    }
    return words;
  }

  // word: placed characters -> its text, every piece that was looked up, and those that were found
  match(word, whole = false) {
    const text = spell(word);
    const unknown = { text, tried: [], found: [{ piece: "[UNK]", span: span(word) }] };
    if (whole && this.ids.has(text)) return { ...unknown, found: [{ piece: text, span: span(word) }] };
    if (whole || word.length > this.options.max_input_chars_per_word) return unknown;
    const tried = [];
    const found = [];
    const units = [0]; // where each character begins in the text of the word
    for (const { character } of word) units.push(units[units.length - 1] + character.length);
    for (let begin = 0, end; begin < word.length; begin = end) {
      let piece = null;
      for (end = Math.min(word.length, begin + this.longest) + 1; piece === null && --end > begin; ) {
        const candidate = (begin ? "##" : "") + text.slice(units[begin], units[end]);
        if (this.matching.has(candidate)) piece = candidate;
        tried.push({ begin: units[begin], end: units[end], found: piece !== null });
      }
      if (piece === null) return { ...unknown, tried };
      found.push({ piece, span: span(word.slice(begin, end)) });
    }
    return { text, tried, found };
  }
}

// Which characters are deleted, lower-cased, decomposed or words of their own, by the tokenizer's own tables.
class Characters {
  constructor(tables) {
    this.tables = tables;
    this.classes = {};
    for (const [name, borders] of Object.entries(tables.classes)) this.classes[name] = new Ranges(borders);
    this.combining = new Map(); // character -> canonical combining class, where that is not 0
    for (const [value, borders] of Object.entries(tables.combining)) {
      for (const code of new Ranges(borders).codes()) this.combining.set(String.fromCodePoint(code), Number(value));
    }
    this.lower = new Map(Object.entries(tables.lower));
    this.decompositions = new Map(Object.entries(tables.decompositions));
    this.compositions = new Map(Object.entries(tables.compositions));
  }

  is(name, character) {
    return this.classes[name].has(character.codePointAt(0));
  }

  // -> [{word, whole}]: cleaned, split, lower-cased, without accents; `whole` is one that is never split
  align(text, begin, neverSplit) {
    const { composes, lower_case, strip_accents } = this.tables;
    const words = [];
    for (let chunk of this.chunks(place(text, begin))) {
      if (composes) chunk = this.compose(chunk);
      if (neverSplit.has(spell(chunk))) {
        words.push({ word: chunk, whole: true });
        continue;
      }
      if (lower_case) chunk = this.lowerCase(chunk);
      if (strip_accents) chunk = this.stripAccents(chunk);
      for (const word of this.splitAtPunctuation(chunk)) words.push({ word, whole: false });
    }
    return words;
  }

  // Clean, and cut at spaces and around ideographs.
  chunks(placed) {
    const chunks = [[]];
    for (const one of placed) {
      if (this.is("deleted", one.character)) continue;
      if (this.is("space", one.character)) chunks.push([]);
      else if (this.is("alone", one.character)) chunks.push([one], []);
      else chunks[chunks.length - 1].push(one);
    }
    return chunks.filter((chunk) => chunk.length);
  }

  splitAtPunctuation(chunk) {
    const words = [[]];
    for (const one of chunk) {
      if (this.is("punctuation", one.character)) words.push([one], []);
      else words[words.length - 1].push(one);
    }
    return words.filter((word) => word.length);
  }

  lowerCase(chunk) {
    return chunk.flatMap((one, at) => {
      const isFinal = one.character === "Σ" && this.tables.final_sigma && this.endsWord(chunk, at);
      return expand(one, isFinal ? "ς" : this.lower.get(one.character) || one.character);
    });
  }

  // Whether the letter at `at` has a letter before it and none after it (Unicode's Final_Sigma).
  endsWord(chunk, at) {
    const nearest = (step) => {
      let next = at + step;
      while (chunk[next] && this.is("case_ignorable", chunk[next].character)) next += step;
      return chunk[next] !== undefined && this.is("cased", chunk[next].character);
    };
    return nearest(-1) && !nearest(1);
  }

  // Decompose without nonspacing marks; marks that stay but change places share their source.
  stripAccents(chunk) {
    const decomposed = chunk.flatMap((one) => expand(one, this.decompose(one.character)));
    return this.runs(decomposed).flatMap((run) => {
      const kept = run.filter((one) => !this.is("nonspacing", one.character));
      const ordered = spell(this.inOrder(kept));
      return ordered === spell(kept) ? kept : expand(merged(kept), ordered);
    });
  }

  // Stretches that are starters, or marks.
  runs(placed) {
    const runs = [];
    let last = null;
    for (const one of placed) {
      const isStarter = !this.combining.has(one.character);
      if (isStarter !== last) runs.push([]);
      runs[runs.length - 1].push(one);
      last = isStarter;
    }
    return runs;
  }

  // Marks by their classes; those of one class stay in their order.
  inOrder(marks) {
    const classOf = ({ character }) => this.combining.get(character) || 0;
    return marks.slice().sort((one, other) => classOf(one) - classOf(other));
  }

  decompose(character) {
    const index = character.codePointAt(0) - SYLLABLES;
    const { vowel, trailing } = N_JAMO;
    if (!isSyllable(index)) return this.decompositions.get(character) || character;
    const parts = [JAMO.leading + Math.floor(index / (vowel * trailing))];
    parts.push(JAMO.vowel + (Math.floor(index / trailing) % vowel));
    if (index % trailing) parts.push(JAMO.trailing + (index % trailing));
    return String.fromCodePoint(...parts);
  }

  // NFC; each stretch that it changes has one source.
  compose(chunk) {
    const begins = chunk.map((_, at) => at).filter((at) => at === 0 || this.is("segment_start", chunk[at].character));
    return begins.flatMap((begin, number) => {
      const segment = chunk.slice(begin, begins[number + 1]);
      const decomposed = segment.flatMap((one) => expand(one, this.decompose(one.character)));
      const ordered = this.runs(decomposed).flatMap((run) => this.inOrder(run));
      const together = this.join(ordered.map(({ character }) => character));
      return together === spell(segment) ? segment : expand(merged(segment), together);
    });
  }

  // Put decomposed characters together: each with the last starter, if nothing stands in between.
  join(characters) {
    const composed = [];
    let starter = -1;
    let lastClass = 0;
    for (const character of characters) {
      const itsClass = this.combining.get(character) || 0;
      if (starter >= 0 && (starter === composed.length - 1 || lastClass < itsClass)) {
        const whole = this.pair(composed[starter], character);
        if (whole) {
          composed[starter] = whole;
          continue;
        }
      }
      if (!itsClass) starter = composed.length;
      lastClass = itsClass;
      composed.push(character);
    }
    return composed.join("");
  }

  // The primary composite of two characters, or nothing.
  pair(first, second) {
    const [left, right] = [first.codePointAt(0), second.codePointAt(0)];
    const [leading, vowel] = [left - JAMO.leading, right - JAMO.vowel];
    if (leading >= 0 && leading < N_JAMO.leading && vowel >= 0 && vowel < N_JAMO.vowel) {
      return String.fromCodePoint(SYLLABLES + (leading * N_JAMO.vowel + vowel) * N_JAMO.trailing);
    }
    const [index, trailing] = [left - SYLLABLES, right - JAMO.trailing];
    const isOpen = isSyllable(index) && index % N_JAMO.trailing === 0; // without a trailing consonant
    if (isOpen && trailing > 0 && trailing < N_JAMO.trailing) return String.fromCodePoint(left + trailing);
    return this.compositions.get(first + second);
  }
}

// Code points by the borders of ranges, each as the distance from the one before: in, out, in, out, ...
class Ranges {
  constructor(steps) {
    let last = 0;
    this.borders = steps.map((step) => (last += step));
  }

  has(code) {
    let [low, high] = [0, this.borders.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.borders[middle] <= code) low = middle + 1;
      else high = middle;
    }
    return low % 2 === 1;
  }

  *codes() {
    for (let i = 0; i < this.borders.length; i += 2) {
      for (let code = this.borders[i]; code < this.borders[i + 1]; code++) yield code;
    }
  }
}

// text -> placed characters, the first of which begins at `begin`
function place(text, begin) {
  return Array.from(text, (character) => {
    const placed = { character, begin, end: begin + character.length };
    begin = placed.end;
    return placed;
  });
}

// What a character became, all of it with the source of that.
function expand({ begin, end }, characters) {
  return Array.from(characters, (character) => ({ character, begin, end }));
}

function merged(placed) {
  return { begin: placed[0].begin, end: placed[placed.length - 1].end };
}

function spell(placed) {
  return placed.map(({ character }) => character).join("");
}

// Where a stretch comes from: marks that changed places may come from before its first character.
function span(placed) {
  const begin = placed.reduce((least, one) => Math.min(least, one.begin), Infinity);
  return [begin, placed.reduce((most, one) => Math.max(most, one.end), 0)];
}

function isSyllable(index) {
  return index >= 0 && index < N_JAMO.leading * N_JAMO.vowel * N_JAMO.trailing;
}

// A token as a regular expression that is found where the token is.
function escaped(token) {
  return token.replace(/[^A-Za-z0-9]/g, "\\$&");
}
