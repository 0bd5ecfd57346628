// The log of a job: its stages, states and warnings, as they come.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../../lib/api.js";
import { duration, moment, visible } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Empty, Loading, Problem } from "../../ui/feedback.js";
import { isFinal } from "./live.js";

const A_PAGE = 200;
const MOST = 1000; // lines on the page; of more, the newest
const BETWEEN_MS = 1000; // two readings

/** `{lines, error, isLoading, isCut}` of the job's log. It is read on when `said` grows; `isCut` where older lines had to go. */
export function useLog(id, said, enabled = true) {
  const [state, setState] = useState({ lines: [], error: null, isLoading: true, isCut: false });
  const reader = useRef({ last: "", isAsked: false, isOver: false, chain: Promise.resolve(), wait: 0 });
  useEffect(() => () => (reader.current.isOver = true), []);
  useEffect(() => {
    const own = reader.current;
    if (!enabled || own.isAsked) return;
    own.isAsked = true;
    own.chain = own.chain.then(async () => {
      await new Promise((done) => setTimeout(done, own.wait));
      own.isAsked = false;
      own.wait = BETWEEN_MS;
      let change = { error: null };
      try {
        await readOn(id, own, (lines) => setState((old) => withLines(old, lines)));
      } catch (error) {
        change = { error };
      }
      if (!own.isOver) setState((old) => ({ ...old, ...change, isLoading: false }));
    });
  }, [id, said, enabled]);
  return state;
}

async function readOn(id, own, add) {
  let hasMore = true;
  while (hasMore && !own.isOver) {
    const page = await get(`/v1/jobs/${encodeURIComponent(id)}/log?limit=${A_PAGE}&after=${encodeURIComponent(own.last)}`);
    own.last = page.lines.at(-1)?.id ?? own.last;
    if (page.lines.length && !own.isOver) add(page.lines);
    hasMore = Boolean(page.next) && page.lines.length > 0;
  }
}

function withLines(old, lines) {
  const all = [...old.lines, ...lines];
  return { ...old, lines: all.slice(-MOST), isCut: old.isCut || all.length > MOST };
}

/** The last that was said of why the job waits. */
export function reasonIn(lines) {
  return lines.findLast((line) => line.kind === "state")?.reason ?? "";
}

/** The lines without those of stages that begin, where they have ended since: that line has what they took. */
function withoutBegun(lines) {
  const ended = new Map();
  const kept = [];
  for (const line of lines.toReversed()) {
    const count = ended.get(line.stage) ?? 0;
    if (line.kind === "stage-finished") ended.set(line.stage, count + 1);
    if (line.kind === "stage-started" && count) ended.set(line.stage, count - 1);
    else kept.push(line);
  }
  return kept.reverse();
}

/** `log` is of `useLog`. It stays at its end while the reader does. */
export function Log({ log, job }) {
  const box = useRef(null);
  const isAtEnd = useRef(!isFinal(job)); // of a job that has ended, the beginning is shown first
  useLayoutEffect(() => {
    if (box.current && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log.lines, log.isLoading]);
  const lines = useMemo(() => withoutBegun(log.lines), [log.lines]);
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 24;
  };
  if (log.isLoading) return html`<${Loading} what="Loading the log" />`;
  if (!log.lines.length) return html`<${Problem} error=${log.error} />${!log.error && html`<${Empty} title="The log is empty."><p>It is forgotten a while after the job's end.</p><//>`}`;
  const begin = job.started ?? job.created;
  return html`
    <${Problem} error=${log.error} />
    ${log.isCut && html`<p class="hint">The newest ${MOST} lines; <a href=${`/v1/jobs/${encodeURIComponent(job.id)}/log`}>the whole log</a> is at the API.</p>`}
    <div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="Log">
      ${lines.map((line) => html`<p key=${line.id} class=${`log-${toneOf(line)}`}>
        <time class="quiet" title=${moment(line.time)}>${sinceText(line.time - begin)}</time>
        <span class="log-kind">${line.kind}</span>
        <bdi class="log-text">${visible(line.text)}</bdi>
      </p>`)}
    </div>
  `;
}

function sinceText(seconds) {
  if (seconds < 0) return "queued";
  return seconds < 60 ? `+${seconds.toFixed(1)} s` : `+${duration(Math.floor(seconds))}`;
}

function toneOf(line) {
  if (line.kind === "warned") return "wait";
  if (line.kind !== "state") return "plain";
  return { failed: "bad", dead: "bad", succeeded: "good" }[line.state] ?? "plain";
}
