// Decisions of a schedule, as text.

/** `{tile_m: 8, unroll: 4}` → "tile m 8 · unroll 4". */
export function decisionsText(decisions) {
  return Object.entries(decisions ?? {}).map(([knob, value]) => `${knobText(knob)} ${value}`).join(" · ");
}

export const knobText = (knob) => knob.replaceAll("_", " ");
