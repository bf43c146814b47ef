"use strict";
// Tensors as the page holds them: base64 of float16, or of int8 with a float32 scale for each row.

// base64 -> Uint8Array
function decodeBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// The value of every float16, by its 16 bits: sign, 5 bits of exponent, 10 of fraction (IEEE 754).
const HALVES = new Float32Array(1 << 16);
for (let bits = 0; bits < HALVES.length; bits++) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const magnitude = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  HALVES[bits] = bits >> 15 ? -magnitude : magnitude;
}

// {shape, kind, data, scale} -> Float32Array, row by row
function decodeTensor(tensor) {
  const bytes = decodeBase64(tensor.data).buffer;
  return tensor.kind === "f16" ? fromHalves(new Uint16Array(bytes)) : fromInt8(new Int8Array(bytes), tensor);
}

function fromHalves(halves) {
  const values = new Float32Array(halves.length);
  for (let i = 0; i < values.length; i++) values[i] = HALVES[halves[i]];
  return values;
}

function fromInt8(whole, tensor) {
  const [rows, columns] = tensor.shape;
  const scale = new Float32Array(decodeBase64(tensor.scale).buffer);
  const values = new Float32Array(whole.length);
  for (let row = 0; row < rows; row++) {
    for (let i = row * columns; i < (row + 1) * columns; i++) values[i] = whole[i] * scale[row];
  }
  return values;
}
