// The results of an exploration as rows, and the names of their figures.

export const AREAS = [
  ["multipliers", "Multipliers", "multipliers"],
  ["scratchpad_bytes", "KiB", "KiB of scratchpads"],
  ["lanes", "Lanes", "lanes of the vector unit"],
  ["port_bytes", "Port", "bytes a cycle of the port"],
  ["lut", "LUTs", "LUTs"],
  ["ff", "Flip-flops", "flip-flops"],
  ["dsp", "DSPs", "multipliers of 18 × 18 bits"],
  ["ram", "RAMs", "block RAMs"],
];
const KIB = 1024;

/** A figure of area as it is shown: scratchpads in KiB. */
export const shownArea = (name, value) => (name === "scratchpad_bytes" && value !== undefined ? value / KIB : value);

/** The results of a model, each with the number and the figures of its shape: `{number, area, mhz, …}`. */
export function rowsOf(exploration, model) {
  const numbers = new Map(exploration.shapes.map((shape, index) => [shape.name, index + 1]));
  return exploration.results
    .filter((result) => result.model === model)
    .map((result) => {
      const number = numbers.get(result.shape);
      const { area, mhz } = exploration.shapes[number - 1];
      return { ...result, ...area, number, area, mhz: median(mhz) };
    });
}

/** The figures of area that all rows have; of them those that differ, or else the first. */
export function axesOf(rows) {
  const common = AREAS.filter(([name]) => rows.every((row) => row.area[name] !== undefined));
  const differing = common.filter(([name]) => new Set(rows.map((row) => row.area[name])).size > 1);
  return differing.length ? differing : common.slice(0, 1);
}

function median(values) {
  if (!values.length) return null;
  const ordered = [...values].sort((a, b) => a - b);
  const middle = Math.floor(ordered.length / 2);
  return ordered.length % 2 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
}
