// Tables: sorted by their heads, scrolled in a box of their own.

import { html } from "../lib/html.js";

/**
 * `columns` are `{key, label, cell(row), isNumber, sort, isWide}`: `sort` is the field that the column is
 * sorted by, where it can be. `order` is `{by, descending}` and `onOrder(order)` sorts. `rowKey(row)`
 * tells rows apart; `rowClass(row)` styles one.
 */
export function Table({ caption, columns, rows, rowKey, rowClass = () => "", order, onOrder, empty = "Nothing here yet." }) {
  return html`<div class="table-box" role="region" aria-label=${caption} tabindex="0">
    <table>
      <caption class="unseen">${caption}</caption>
      <thead>
        <tr>${columns.map((column) => html`<${Head} key=${column.key} ...${{ column, order, onOrder }} />`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${rowKey(row)} class=${rowClass(row)}>
            ${columns.map((column) => html`<td key=${column.key} class=${classOf(column)}>${column.cell(row)}</td>`)}
          </tr>`,
        )}
        ${rows.length === 0 && html`<tr><td class="table-empty" colspan=${columns.length}>${empty}</td></tr>`}
      </tbody>
    </table>
  </div>`;
}

function Head({ column, order, onOrder }) {
  const isSorted = Boolean(order && column.sort && order.by === column.sort);
  const direction = order?.descending ? "descending" : "ascending";
  const turn = () => onOrder({ by: column.sort, descending: isSorted ? !order.descending : Boolean(column.isNumber) });
  return html`<th scope="col" class=${classOf(column)} aria-sort=${isSorted ? direction : undefined}>
    ${column.sort && onOrder
      ? html`<button type="button" class="sort" onClick=${turn}>${column.label}<span aria-hidden="true">${arrow(isSorted, order)}</span></button>`
      : column.label}
  </th>`;
}

function arrow(isSorted, order) {
  if (!isSorted) return " ↕";
  return order.descending ? " ↓" : " ↑";
}

function classOf(column) {
  return [column.isNumber && "number", column.isWide && "wide"].filter(Boolean).join(" ");
}

/** Rows in the order `{by, descending}`; `by` is a key of them. What is not known comes last. */
export function sorted(rows, { by, descending } = {}) {
  if (!by) return rows;
  const sign = descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [one[by], other[by]];
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return a < b ? -sign : sign;
  });
}

/** The pages of a list of which each answer names the `after` of the next. */
export function More({ next, isLoading, onMore }) {
  if (!next) return null;
  return html`<p class="more"><button type="button" disabled=${isLoading} onClick=${onMore}>${isLoading ? "Loading…" : "Show more"}</button></p>`;
}
