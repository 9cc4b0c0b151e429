// SPDX-License-Identifier: Apache-2.0
// Blue and orange are from Okabe and Ito's palette (Color Universal Design, 2008), whose colors
// people with any color vision can tell apart. No color is the only sign of anything: shapes, fills
// and words say the same.
namespace moejit::cli {

// It has none of the characters that HTML and XML read differently.
extern const char* const kPageStyle;
const char* const kPageStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1f24; --soft: #5a6572; --line: #d5dae0; --grid: #e9ecef;
  --panel: #f5f7f9; --one: #0064a8; --two: #c25100; --shade: #dfe4ea; --pick: #fff1e2;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e4e7eb; --soft: #9aa5b1; --line: #3a424b; --grid: #262c33;
    --panel: #1c2127; --one: #6bbcf0; --two: #f2a33c; --shade: #2b323a; --pick: #33281a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 20px; line-height: 1.3; margin: 48px 0 8px; overflow-wrap: anywhere; }
h3 { font-size: 15px; margin: 24px 0 8px; }
p { margin: 0 0 12px; max-width: 75ch; }
a { color: var(--one); }
.subtitle, figcaption, .note { color: var(--soft); overflow-wrap: anywhere; }
.problem { font: 12.5px/1.5 ui-monospace, Menlo, Consolas, monospace; color: var(--soft);
  overflow-wrap: anywhere; max-width: none; }
.facts { display: flex; flex-wrap: wrap; gap: 12px; margin: 24px 0; }
.facts div { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 16px; min-width: 130px; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: 0 0 12px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 5px 18px 5px 0;
  border-bottom: 1px solid var(--grid); }
th { font-weight: 600; color: var(--soft); border-bottom-color: var(--line); vertical-align: bottom; }
th.number, td.number { text-align: right; }
td.number { white-space: nowrap; }
table.dense { font-size: 12.5px; }
table.dense th, table.dense td { padding-right: 11px; }
th.group { padding-top: 14px; color: var(--ink); }
td.choices { font: 12.5px/1.6 ui-monospace, Menlo, Consolas, monospace; white-space: nowrap; }
td.problem { min-width: 300px; }
td.unknown { color: var(--soft); font-style: italic; }
tr.winner td { background: var(--pick); font-weight: 600; }
pre { font: 12px/1.5 ui-monospace, Menlo, Consolas, monospace; background: var(--panel);
  border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px; margin: 4px 0 12px;
  max-height: 16em; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 16px 0 24px; }
figcaption { font-size: 13px; max-width: 90ch; }
details { margin: 0 0 12px; }
summary { cursor: pointer; font-weight: 600; margin: 0 0 8px; }
svg { display: block; width: 100%; min-width: 760px; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif;
  fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .soft { fill: var(--soft); }
svg .bold { font-weight: 600; }
svg .code { font: 11.5px ui-monospace, Menlo, Consolas, monospace; }
svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .axis { stroke: var(--line); stroke-width: 1; }
svg .reference { stroke: var(--ink); stroke-width: 1.2; }
svg .dashed { stroke-dasharray: 5 4; }
svg .shade { fill: var(--shade); }
svg .pick { fill: var(--pick); }
svg .dot-usual { fill: var(--soft); fill-opacity: 0.75; }
svg .dot-racing { fill: var(--one); fill-opacity: 0.6; }
svg .dot-winner { fill: var(--two); fill-opacity: 0.7; }
svg .dot-out { fill: none; stroke: var(--soft); stroke-width: 1.1; }
svg .range-racing { stroke: var(--one); stroke-width: 2; }
svg .range-winner { stroke: var(--two); stroke-width: 2.5; }
svg .range-out, svg .range-usual { stroke: var(--soft); stroke-width: 2; }
svg .trace { fill: none; stroke: var(--one); stroke-width: 1.5; }
svg .hot { fill: var(--one); }
svg .cool { fill: var(--one); fill-opacity: 0.15; stroke: var(--one); stroke-width: 1; }
svg .tensor { fill: var(--two); }
svg .tensor-cool { fill: var(--two); fill-opacity: 0.15; stroke: var(--two); stroke-width: 1; }
svg .roof { fill: none; stroke: var(--ink); stroke-width: 1.6; }
svg .roof.second { stroke: var(--soft); stroke-dasharray: 7 4; }
svg .leader { stroke: var(--soft); stroke-width: 0.7; stroke-opacity: 0.7; fill: none; }
@media (max-width: 640px) {
  main { padding: 20px 12px 40px; }
  h1 { font-size: 23px; }
  .facts div { flex: 1 1 40%; }
}
@media print {
  :root { color-scheme: light; }
  body { font-size: 10.5pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  h2, h3, summary { break-after: avoid; }
  figure, tr, .facts { break-inside: avoid; }
  .scroll { overflow: visible; }
  svg { min-width: 0; }
  table { font-size: 8.5pt; }
  table.dense, table.dense td.choices { font-size: 6.5pt; }
  table.dense th, table.dense td { padding-right: 5px; }
  td.choices { white-space: normal; font-size: 8pt; }
  td.problem { min-width: 200px; font-size: 7.5pt; }
  th, td { padding-right: 10px; }
  pre { max-height: none; }
  a { color: inherit; text-decoration: none; }
}
)css";

}  // namespace moejit::cli
