// Choosing a model's files, and how far each is.

import { useRef, useState } from "preact/hooks";
import { bytes, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Choice, Field } from "../../ui/controls.js";
import { Notice, Problem } from "../../ui/feedback.js";
import { Table } from "../../ui/table.js";
import { Name, Share } from "../../ui/text.js";

/** `transfer` is the state of `useTransfer`, `actions` what it can do. */
export function Files({ transfer, actions }) {
  const { stage, files, main, error } = transfer;
  const isBusy = stage === "reading" || stage === "sending";
  return html`
    <${DropZone} onFiles=${actions.add} hasFiles=${files.length > 0} />
    ${files.length > 0 && !main && html`<${ChooseMain} files=${files} onChoose=${actions.choose} />`}
    ${stage === "asking" && html`<${Places} transfer=${transfer} actions=${actions} />`}
    ${files.length > 0 && main && html`<${Progress} transfer=${transfer} />`}
    <${Problem} error=${error} title=${error?.title ? `${error.title}.` : "The upload did not get through."} />
    <p class="actions" aria-live="polite">
      ${isBusy && html`<button type="button" onClick=${actions.stop}>Cancel the upload</button>`}
      ${(stage === "stopped" || stage === "failed") && html`<button type="button" class="button-main" onClick=${() => actions.start()}>Go on with the upload</button>`}
      ${files.length > 0 && !isBusy && stage !== "done" && html`<button type="button" onClick=${actions.clear}>Choose other files</button>`}
    </p>
  `;
}

function DropZone({ onFiles, hasFiles }) {
  const input = useRef(null);
  const [isOver, setOver] = useState(false);
  const [hasFolder, setFolder] = useState(false);
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
    setFolder(entries.some((entry) => entry?.isDirectory));
    const files = [...event.dataTransfer.files].filter((_, index) => !entries[index]?.isDirectory);
    if (files.length) onFiles(files);
  };
  const chosen = (event) => {
    const files = [...event.target.files];
    event.target.value = ""; // so that the same files can be chosen again
    if (files.length) onFiles(files);
  };
  const over = (event) => {
    event.preventDefault();
    setOver(true);
  };
  return html`<div class="drop ${isOver ? "drop-over" : ""} ${hasFiles ? "drop-small" : ""}" onDragOver=${over} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <p><strong>Drop an ONNX model here</strong>, with its data files where it has any.</p>
    <p><button type="button" onClick=${() => input.current.click()}>Choose files</button></p>
    <input ref=${input} type="file" multiple class="unseen" tabindex="-1" aria-hidden="true" data-role="files" onChange=${chosen} />
    ${hasFolder && html`<p class="field-error" role="alert">A folder cannot be taken: drop the files in it.</p>`}
  </div>`;
}

function ChooseMain({ files, onChoose }) {
  const options = [["", "Choose"], ...files.map((one) => [one.key, one.key])];
  return html`<${Field} label="Which of the files is the model?" name="main" hint="The others are taken for its data files.">
    <${Choice} id="main" value="" options=${options} onChange=${onChoose} />
  <//>`;
}

function Places({ transfer, actions }) {
  const { named, places, files, main } = transfer;
  const others = files.filter((one) => one.key !== main);
  const missing = named.filter((location) => !places[location]);
  const options = [["", "Not chosen yet"], ...others.map((one) => [one.key, one.key])];
  return html`<${Notice} tone="wait">
      <p><strong>The model names ${missing.length === 1 ? "a data file" : `${missing.length} data files`} that ${missing.length === 1 ? "was" : "were"} not chosen.</strong> Drop or choose ${missing.length === 1 ? "it" : "them"} as well${others.length > 0 && ", or say below which of the chosen files it is"}.</p>
    <//>
    <${Table} caption="Data files that the model names" rowKey=${(location) => location} rows=${named.slice(0, 200)}
      columns=${[
        { key: "location", label: "Location in the model", isWide: true, cell: (location) => html`<${Name} text=${location} />` },
        { key: "file", label: "File", cell: (location) => html`<${Choice} label=${`File of ${location}`} value=${places[location] ?? ""} options=${options} onChange=${(key) => actions.place(location, key)} />` },
      ]} />
    <p class="actions spaced">
      <button type="button" class="button-main" disabled=${missing.length > 0} onClick=${() => actions.start()}>Upload</button>
      <button type="button" onClick=${() => actions.start({ isComplete: true })}>Upload without what is missing</button>
    </p>`;
}

function Progress({ transfer }) {
  const { files, main, places, named, progress, stage } = transfer;
  const used = new Set([main, ...Object.values(places)]);
  const placeOf = (key) => Object.keys(places).filter((location) => places[location] === key).join(", ");
  const rows = files.map((one) => ({ ...one, ...progress[one.key], isUsed: used.has(one.key), place: placeOf(one.key) }));
  const columns = [
    { key: "file", label: "File", isWide: true, cell: (row) => html`<${Name} text=${row.key} />` },
    { key: "role", label: "What it is", cell: (row) => (row.key === main ? "model" : row.place ? html`data, at <${Name} text=${row.place} />` : "–") },
    { key: "size", label: "Size", isNumber: true, cell: (row) => bytes(row.file.size) },
    { key: "state", label: "Upload", cell: (row) => html`<${Standing} row=${row} stage=${stage} hasNamed=${named.length > 0 || stage !== "reading"} />` },
  ];
  return html`<${Table} caption="The model's files" columns=${columns} rows=${rows.slice(0, 200)} rowKey=${(row) => row.key} />`;
}

function Standing({ row, stage, hasNamed }) {
  const { file, read = 0, sent, wasThere, isUsed } = row;
  if (wasThere) return "the server has it already";
  if (sent === file.size) return "sent";
  if (sent !== undefined) return html`<${Share} value=${sent / file.size} text=${`${percent(sent / file.size)} sent`} />`;
  if (!isUsed && hasNamed) return "not named by the model: left out";
  if (stage === "reading" && read > 0) return html`<${Share} value=${read / file.size} text=${read < file.size ? `${percent(read / file.size)} read` : "read"} />`;
  return stage === "sending" || stage === "reading" ? "waits" : "–";
}
