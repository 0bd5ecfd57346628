// Hashes a file a piece at a time, in a worker. In an ONNX message it also finds which data files the
// message names: they are offered to the reader, and decide nothing.

import { sha256 } from "../../vendor/noble-hashes/sha2.js";

const PIECE_BYTES = 4 << 20;
const OVERLAP = 4200; // bytes of the longest location, and what is before it
const MOST_LOCATIONS = 4000;
// StringStringEntryProto of TensorProto.external_data: key (1) "location", then value (2).
const MARK = Uint8Array.from([0x0a, 0x08, ...new TextEncoder().encode("location"), 0x12]);
const RAREST = 2; // of its bytes, which is looked for first

onmessage = async ({ data: { file, findLocations } }) => {
  try {
    postMessage({ result: await measured(file, findLocations) });
  } catch (error) {
    postMessage({ error: error.message });
  }
};

async function measured(file, findLocations) {
  const hash = sha256.create();
  const locations = new Set();
  let tail = new Uint8Array(0);
  for (let at = 0; at < file.size; at += PIECE_BYTES) {
    const piece = new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer());
    hash.update(piece);
    if (findLocations) {
      const joined = new Uint8Array(tail.length + piece.length);
      joined.set(tail);
      joined.set(piece, tail.length);
      find(joined, locations);
      tail = joined.slice(-OVERLAP);
    }
    postMessage({ done: at + piece.length });
  }
  const digest = Array.from(hash.digest(), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { sha256: digest, locations: [...locations] };
}

function find(bytes, locations) {
  for (let at = bytes.indexOf(MARK[RAREST]); at >= 0; at = bytes.indexOf(MARK[RAREST], at + 1)) {
    const start = at - RAREST;
    if (start < 0 || MARK.some((byte, index) => bytes[start + index] !== byte)) continue;
    const [length, first] = varint(bytes, start + MARK.length);
    if (!length || length > 4095 || first + length > bytes.length || locations.size >= MOST_LOCATIONS) continue;
    locations.add(new TextDecoder().decode(bytes.subarray(first, first + length)));
  }
}

/** A length of at most two bytes, and where what it is of begins. */
function varint(bytes, at) {
  const low = bytes[at];
  return low < 0x80 ? [low, at + 1] : [(low & 0x7f) | (bytes[at + 1] << 7), at + 2];
}
