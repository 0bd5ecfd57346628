// The files of a model on their way to the server, as the page shows them.

import { useEffect, useRef, useState } from "preact/hooks";
import { MODEL_FILE } from "../../lib/commands.js";
import { hashed, modelOf, sent } from "../../lib/upload.js";

const IDLE = { stage: "idle", files: [], main: null, named: [], places: {}, progress: {}, error: null };
const SHOWN_MS = 100; // progress is shown so often

/**
 * `[state, actions]`. `state.stage` is idle, reading, asking (the model names data files that were not
 * chosen), sending, done, stopped or failed. `files` are the chosen ones by key, `main` the key of the
 * message, `named` the locations that it names, `places` which file lies at each of them, `progress`
 * how far each file is. `onModel(id, name)` is told the model once the server has it.
 */
export function useTransfer(onModel) {
  const [state, setState] = useState(IDLE);
  const latest = useRef(state);
  const abort = useRef(null);
  const digests = useRef(new WeakMap()); // of files that were read before
  const change = (changes) => {
    latest.current = { ...latest.current, ...changes };
    setState(latest.current);
  };
  useEffect(() => () => abort.current?.abort(), []);

  const read = async (entry, findLocations, signal) => {
    const known = digests.current.get(entry.file);
    if (known && (known.locations || !findLocations)) return known;
    const result = await hashed(entry.file, { findLocations, signal, onProgress: progressOf(entry.key, "read") });
    digests.current.set(entry.file, findLocations ? result : { sha256: result.sha256 });
    return result;
  };
  const progressOf = (key, what) => {
    let last = 0;
    return (given) => {
      const now = performance.now();
      const isEnd = typeof given === "object" && (given.wasThere || given.offset === fileOf(key).size);
      if (now - last < SHOWN_MS && !isEnd) return;
      last = now;
      const entry = what === "read" ? { read: given } : { sent: given.offset, wasThere: given.wasThere };
      change({ progress: { ...latest.current.progress, [key]: { ...latest.current.progress[key], ...entry } } });
    };
  };
  const fileOf = (key) => latest.current.files.find((one) => one.key === key).file;

  const run = async ({ isComplete = false } = {}) => {
    abort.current?.abort();
    const { signal } = (abort.current = new AbortController());
    try {
      change({ stage: "reading", error: null });
      const main = latest.current.files.find((one) => one.key === latest.current.main);
      const { sha256, locations } = await read(main, true, signal);
      const places = placed(locations, latest.current);
      change({ named: locations, places });
      if (!isComplete && locations.some((location) => !places[location])) {
        change({ stage: "asking" });
        return;
      }
      const used = Object.entries(places).filter(([, key]) => key);
      const entries = latest.current.files.filter((one) => used.some(([, key]) => key === one.key));
      const digestsOf = { [main.key]: sha256 };
      for (const entry of entries) digestsOf[entry.key] = (await read(entry, false, signal)).sha256;
      change({ stage: "sending" });
      const files = Object.fromEntries(used.map(([place, key]) => [place, { sha256: digestsOf[key], size: fileOf(key).size }]));
      const id = await delivered(async () => {
        for (const entry of [main, ...entries]) {
          await sent(entry.file, digestsOf[entry.key], { signal, onProgress: progressOf(entry.key, "sent") });
        }
        return modelOf(sha256, files);
      });
      change({ stage: "done" });
      onModel(id, main.file.name);
    } catch (error) {
      if (signal.aborted) return;
      change({ stage: "failed", error });
    }
  };

  const actions = {
    add: (given) => {
      const isNew = !["asking", "idle"].includes(latest.current.stage) || !latest.current.files.length;
      const kept = isNew ? [] : latest.current.files.filter((one) => !given.some((file) => pathOf(file) === one.key));
      const files = [...kept, ...given.map((file) => ({ key: pathOf(file), file }))];
      const messages = files.filter((one) => MODEL_FILE.test(one.file.name));
      const candidates = messages.length ? messages : files;
      const main = candidates.length === 1 ? candidates[0].key : files.some((one) => one.key === latest.current.main) ? latest.current.main : null;
      change({ ...IDLE, files, main, places: isNew ? {} : latest.current.places });
      if (main) run();
    },
    choose: (main) => {
      change({ ...IDLE, files: latest.current.files, main });
      if (main) run();
    },
    place: (location, key) => change({ places: { ...latest.current.places, [location]: key } }),
    start: (options) => run(options),
    stop: () => {
      abort.current?.abort();
      change({ stage: "stopped" });
    },
    clear: () => {
      abort.current?.abort();
      change(IDLE);
    },
  };
  return [state, actions];
}

const pathOf = (file) => file.webkitRelativePath || file.name;

/** Which chosen file lies at each location: as the reader said, else the one of its path or name. */
function placed(locations, { files, main, places }) {
  const others = files.filter((one) => one.key !== main);
  const nameOf = (path) => path.split("/").at(-1);
  const found = (location) => {
    if (places[location] && others.some((one) => one.key === places[location])) return places[location];
    const named = others.filter((one) => one.key === location || one.key.endsWith(`/${location}`));
    const alike = named.length ? named : others.filter((one) => nameOf(one.key) === nameOf(location));
    return alike.length === 1 ? alike[0].key : null;
  };
  return Object.fromEntries(locations.map((location) => [location, found(location)]));
}

/** What `deliver` returns; where what the server had is gone meanwhile, it is sent once more. */
async function delivered(deliver) {
  try {
    return await deliver();
  } catch (error) {
    if (![404, 409].includes(error.status)) throw error;
    return deliver();
  }
}
