// Markup in JavaScript: `html` makes what Preact renders. Values in it are text, never markup.

import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
