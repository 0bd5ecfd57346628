// Why a device is in quarantine, and the way back.

import { useState } from "preact/hooks";
import { html } from "../../lib/html.js";
import { useResource } from "../../lib/live.js";
import { isAtLeast, post } from "../../lib/api.js";
import { Action, Confirm } from "../../ui/controls.js";
import { Name, Said } from "../../ui/text.js";

const LOOKED_AT = 50; // a device in quarantine gets no batches, so the reason is among its newest events

/** The reason, by the device's history. */
export function WhyAway({ id, isWhole = false }) {
  const { data } = useResource(`/v1/devices/${encodeURIComponent(id)}/history?limit=${LOOKED_AT}`);
  const found = data?.history.find((happening) => happening.what === "quarantined");
  if (!data) return null;
  const reason = found?.reason || "too many faults in a row";
  return isWhole ? html`<${Said} text=${reason} />` : html`<${Name} text=${reason} />`;
}

/** A button that ends a quarantine, after a question; operators have it. */
export function Release({ id, onReleased, onError }) {
  const [isAsking, setAsking] = useState(false);
  if (!isAtLeast("operator")) return null;
  const release = async () => {
    await post(`/v1/devices/${encodeURIComponent(id)}/release`);
    onReleased();
  };
  const answered = (isYes) => {
    setAsking(false);
    if (isYes) release().then(() => onError(null), onError);
  };
  return html`
    <${Action} run=${async () => setAsking(true)}>Release<//>
    ${isAsking &&
    html`<${Confirm} title="Release this device?" yes="Release it" no="Leave it" onAnswer=${answered}>
      <p>
        <${Name} text=${id} /> gets work again at once. Release it when whoever looked after it says that it measures
        well; if it goes on failing it comes back here.
      </p>
    <//>`}
  `;
}
