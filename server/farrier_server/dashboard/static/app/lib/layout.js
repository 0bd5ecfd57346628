// Where the nodes of a graph lie: found in a worker, within a time limit.

import { useEffect, useState } from "preact/hooks";

const DAGRE_NODES = 1500; // of more it would take minutes
const DAGRE_EDGES = 4000;
const DAGRE_MS = 8000;
const LAYERS_MS = 30_000;

/**
 * `{layout, note, error}` of a graph `{widths, height, edges}`, which has to stay the same object.
 * `note` says where the layout is the simple one, and why.
 */
export function useLayout(graph) {
  const [made, setMade] = useState({ graph: null });
  useEffect(() => {
    if (!graph) return undefined;
    let worker = null;
    let timer = 0;
    const run = (method, limit, note, failed) => {
      worker = new Worker(new URL("./layout_worker.js", import.meta.url), { type: "module" });
      const end = (result) => {
        clearTimeout(timer);
        worker.terminate();
        if (result) setMade({ graph, layout: result, note });
        else failed();
      };
      timer = setTimeout(() => end(null), limit);
      worker.onmessage = ({ data }) => end(data);
      worker.onerror = () => end(null);
      worker.postMessage({ method, ...graph });
    };
    const simple = (why) => run("layers", LAYERS_MS, `Laid out in simple layers, because ${why}.`, () => {
      setMade({ graph, error: "The graph could not be laid out. The table has all of it." });
    });
    const isLarge = graph.widths.length > DAGRE_NODES || graph.edges.length / 2 > DAGRE_EDGES;
    if (isLarge) simple("the graph is large");
    else run("dagre", DAGRE_MS, "", () => simple("a better layout takes too long"));
    return () => {
      clearTimeout(timer);
      worker?.terminate();
    };
  }, [graph]);
  return made.graph === graph ? made : { layout: null, note: "", error: null };
}
