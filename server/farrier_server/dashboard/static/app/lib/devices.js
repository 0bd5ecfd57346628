// What a device's fields come to.

import { bytes, count, number } from "./format.js";

export const DEVICE_STATES = ["idle", "busy", "draining", "drained", "paused", "quarantined", "unfit", "offline", "revoked"];

export const DEVICE_TONES = {
  idle: "good", busy: "busy", draining: "wait", drained: "wait", paused: "wait", quarantined: "bad", unfit: "bad",
  offline: "off", revoked: "bad",
};

const EMULATED = "-emulated";

export const isEmulated = (device) => device.description.emulated === true || device.device_class.endsWith(EMULATED);

/** "Cortex-A72, 4 cores, aarch64": what a machine is, for people. */
export function machineOf(description) {
  const cores = description.cores === 1 ? "1 core" : `${count(description.cores)} cores`;
  const simulated = description.runner === "simulator" && "simulated";
  return [description.cpu || "unknown processor", cores, description.arch, simulated].filter(Boolean).join(", ");
}

/** A cache or a memory; one that the kernel does not tell of has 0 bytes. */
export const sizeOf = (value) => (value ? bytes(value) : null);

/** "52 °C of 80", or null where the device tells none. */
export function temperatureOf({ celsius, limit_celsius: limit }) {
  if (celsius === null || celsius === undefined) return null;
  return limit ? `${number(celsius)} °C of ${number(limit)}` : `${number(celsius)} °C`;
}

/** "1 500 of 1 800 MHz", or null. */
export function clockOf({ clock_mhz: clock, max_clock_mhz: most }) {
  if (!clock) return null;
  return most ? `${count(clock)} of ${count(most)} MHz` : `${count(clock)} MHz`;
}
