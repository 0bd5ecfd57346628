// Decisions of a schedule, as text.

/** `{tile_m: 8, unroll: 4}` → "tile m 8 · unroll 4", in the order of the knobs' names. */
export function decisionsText(decisions) {
  const knobs = Object.entries(decisions ?? {}).sort(([one], [other]) => (one < other ? -1 : 1));
  return knobs.map(([knob, value]) => `${knobText(knob)} ${value}`).join(" · ");
}

export const knobText = (knob) => knob.replaceAll("_", " ");
