// A model on its way to the server: each file is hashed in a worker, then sent in pieces where the
// server lacks it. An upload that breaks goes on where it stood, after the page was loaded anew, too.

import { ApiError, get, post, request } from "./api.js";

const FIRST_PIECE = 1 << 20; // bytes
const SMALLEST_PIECE = 1 << 18;
const LARGEST_PIECE = 8 << 20;
const PIECE_MS = 2000; // what a piece is to take, so that the progress moves and a cancel is quick
const PATIENCE_MS = 60_000; // how long a server may be away
const RETRY_MS = 1000;
const SLOWEST_PER_MS = 16; // bytes; a link that is slower is as good as dead
const HASHED_PER_MS = 50_000; // bytes that a slow server hashes where it must read an upload once more

/**
 * `{sha256, locations}` of a file: its digest and, with `findLocations`, the data files that an ONNX
 * message names. `onProgress(bytes)` is told how far it is.
 */
export function hashed(file, { findLocations = false, onProgress = () => {}, signal } = {}) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./hash_worker.js", import.meta.url), { type: "module" });
    const end = (settle, value) => {
      worker.terminate();
      settle(value);
    };
    worker.onmessage = ({ data }) => {
      if (data.result) end(resolve, data.result);
      else if (data.error) end(reject, unreadable(file, data.error));
      else onProgress(data.done);
    };
    worker.onerror = (event) => end(reject, unreadable(file, event.message ?? "the worker did not start"));
    signal?.addEventListener("abort", () => end(reject, signal.reason), { once: true });
    worker.postMessage({ file, findLocations });
  });
}

/**
 * Sends a file of the digest `sha256`. `onProgress({offset, wasThere})` is told how far the server has
 * it; `wasThere` is true where it had all of it before. A server that is away is waited for.
 */
export async function sent(file, sha256, { onProgress = () => {}, signal } = {}) {
  const key = `farrier-upload:${sha256}`;
  let upload = null;
  let hasSent = false;
  let piece = FIRST_PIECE;
  let deadline = Date.now() + PATIENCE_MS;
  while (!upload?.complete) {
    try {
      const start = performance.now();
      if (!upload) {
        upload = (await taken(key)) ?? (await begun(file, sha256, key));
      } else {
        hasSent = true;
        upload = await appended(file, upload, piece, signal);
        const ms = performance.now() - start;
        piece = Math.min(LARGEST_PIECE, Math.max(SMALLEST_PIECE, ms > PIECE_MS ? piece / 2 : ms < PIECE_MS / 2 ? piece * 2 : piece));
      }
      deadline = Date.now() + PATIENCE_MS;
      onProgress({ offset: upload.offset, wasThere: upload.complete && !hasSent });
    } catch (error) {
      await checkReadable(file);
      if (signal?.aborted || !passes(error) || Date.now() > deadline) throw error;
      await paused(error.retryAfter ? error.retryAfter * 1000 : RETRY_MS, signal);
      upload = null; // it is asked for anew: where it stands, or that it is complete
    }
  }
  localStorage.removeItem(key);
}

/** The id of the model that a message and its data files (`{location: {sha256, size}}`) make. */
export async function modelOf(message, files) {
  if (!Object.keys(files).length) return message;
  return (await post("/v1/models", { message, files })).id;
}

async function begun(file, sha256, key) {
  const upload = await post("/v1/uploads", { size: file.size, sha256 });
  if (upload.id) localStorage.setItem(key, upload.id);
  return upload;
}

/** The upload that this browser began before; null where the server has it no more, or complete. */
async function taken(key) {
  const id = localStorage.getItem(key);
  if (!id) return null;
  try {
    return await get(`/v1/uploads/${id}`);
  } catch (error) {
    if (error.status !== 404) throw error;
    localStorage.removeItem(key);
    return null;
  }
}

async function appended(file, upload, bytes, signal) {
  const body = file.slice(upload.offset, upload.offset + bytes);
  const isLast = upload.offset + body.size === file.size;
  const limit = 30_000 + body.size / SLOWEST_PER_MS + (isLast ? file.size / HASHED_PER_MS : 0);
  const signals = [AbortSignal.timeout(limit), ...(signal ? [signal] : [])];
  const headers = { "Upload-Offset": String(upload.offset), "Content-Type": "application/octet-stream" };
  return request("PATCH", `/v1/uploads/${upload.id}`, { body, headers, signal: AbortSignal.any(signals) });
}

const passes = (error) => error instanceof ApiError && [0, 404, 408, 409, 429, 503].includes(error.status);

/** Raises an ApiError where a file was moved or changed since it was chosen. */
async function checkReadable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch (error) {
    throw unreadable(file, error.message);
  }
}

function paused(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

function unreadable(file, reason) {
  return new ApiError({
    status: 0,
    code: "unreadable",
    title: "The file cannot be read",
    detail: `${file.name}: ${reason}`,
    hint: "It may have been moved or changed since it was chosen: choose it again.",
  });
}
