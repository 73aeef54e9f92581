// What the page's data, figures and forms consist of, for the type check; the page does not contain this file.

type Value = string | number | boolean | null | Value[];
type Settings = Record<string, Value>;

// Figures, as `orthobench/reporting/figures` describes them in Plotly's schema

interface Trace {
  type?: string;
  name?: string;
  mode?: string;
  x?: number[];
  y?: number[];
  z?: number[][];
  text?: string[];
  hovertext?: string[];
  hoverinfo?: string;
  showlegend?: boolean;
  legendgroup?: string;
  visible?: boolean;
  opacity?: number;
  fill?: string;
  fillcolor?: string;
  line?: { color?: string; width?: number; dash?: string };
  marker?: { color?: string | number[]; size?: number | number[]; symbol?: string };
  meta?: { label?: string; model?: string; variant?: string; tags?: string[]; published?: boolean };
  /** Whether the page has computed it as a moving mean. */
  isMean?: boolean;
}

type Title = string | { text?: string; font?: object; standoff?: number };
interface Axis {
  title?: Title;
  type?: string;
  range?: number[];
  autorange?: boolean;
  tickvals?: number[];
  ticktext?: string[];
  ticklabelposition?: string;
  tickfont?: object;
  scaleanchor?: string;
  rangemode?: string;
  automargin?: boolean;
  exponentformat?: string;
  gridcolor?: string;
  linecolor?: string;
  zeroline?: boolean;
  showline?: boolean;
}
interface Layout {
  xaxis?: Axis;
  yaxis?: Axis;
  showlegend?: boolean;
  hovermode?: string;
  font?: object;
  margin?: { l?: number; r?: number; t?: number; b?: number };
  paper_bgcolor?: string;
  plot_bgcolor?: string;
  hoverlabel?: object;
  legend?: object;
  /** What an axis shows, if it is not everything, and where a baseline is that it leaves out. */
  meta?: { words?: string; baseline?: string };
}
interface Figure {
  data: Trace[];
  layout: Layout;
  /** The number of points of the longest line, if some are left out. */
  longest?: number;
}
/** An axis that Plotly has drawn. */
interface DrawnAxis {
  d2p(value: number): number;
  _offset: number;
  _length: number;
}

/** What the page knows of each pair of cells, as `questions` in `account/abilities.py` writes it. */
interface Questions {
  answers: string[];
  swapped: number[];
  open: number[];
  seeds: number;
  command: string;
  columns: { label: string; note: string; word: string }[];
  /** `model` is what a tuned comparison trains, null for variants, whose setting it does not choose. A cell has its median, its lowest and its highest score, its number of seeds, and the version of the model if it has a newer one. */
  members: { label: string; model: string | null; time: number | null; cells: ([number, number, number, number, string] | null)[] }[];
  pairs: ([number, number | null] | null)[][];
}

/** Iterations and seconds per epoch, by the label of a variant. */
type Rates = Record<string, [number | null, number | null]>;

/** The element of a figure, with its data and what the reader has set. */
interface Plot extends HTMLElement {
  /** The figure that a script has built; others are in the block of their condition. */
  figure?: Figure;
  /** The figure before its tools and filters. */
  base?: Figure;
  rates?: Rates;
  tools?: { unit: string | null; log: boolean | null; smooth: number; bands: boolean; whole: boolean; all: boolean; inches: number };
  legend?: HTMLElement;
  /** The entries of the legend that the reader has switched off. */
  off?: Set<string>;
  /** The ranges that the reader has set, while the figure is not drawn with them. */
  ranges?: Record<string, number[]> | null;
  /** The width of the labels at the ends of the lines, in pixels; 0 without them. */
  ends?: number;
  /** Whether the labels do not fit at the ends of the lines. */
  crowded?: boolean;
  /** The axes of the figure as it is drawn, before the reader sets a range. */
  drawn?: Pick<Layout, "xaxis" | "yaxis"> | null;
  isForPrint?: boolean;
  /** The number of points of the longest line of which some are left out. */
  longest?: number;
  // What Plotly adds
  data?: Trace[];
  layout?: Layout;
  _fullLayout?: { xaxis: DrawnAxis; yaxis: DrawnAxis };
  on?(event: string, act: () => void): void;
}
/** What the reader has set on a served page before it was loaded again. */
interface Kept {
  scroll: [number, number];
  matrix: Record<string, string> | null;
  tab?: string;
  folds: [string, boolean][];
  focus: [number, string];
  figures: Record<string, { tools: Plot["tools"]; off: string[]; ranges: Plot["ranges"] }>;
}
/** A button of a legend, with the name of its lines. */
interface LegendEntry extends HTMLButtonElement {
  entry?: string;
}
/** A line of a figure that a script builds. */
type Line = Trace & { color?: string; dash?: string; width?: number; of?: number };

interface PlotlyLibrary {
  react(container: Plot, data: Trace[], layout: Layout, options: object): void;
  relayout(container: Plot, changes: Record<string, number[] | boolean>): void;
  purge(container: Plot): void;
  toImage(figure: Figure, options: object): Promise<string>;
}
declare const Plotly: PlotlyLibrary;
interface Window {
  Plotly?: PlotlyLibrary;
}

// The blocks of the page, as `run_records.py`, `drawings.py` and `search_data.py` write them

interface Condition {
  key: string;
  title: string;
  label: string;
  task: string;
  metric: string;
  axis: string;
  goal: "min" | "max";
  baseline: number | null;
}
interface Variant {
  key: string;
  label: string;
  model: string;
  condition: number;
  color: string;
  settings: Settings;
  parameters: number;
  perEpoch: number | null;
  /** Whether it stands for its model (`precedence` in analysis/judged.py). */
  stands: boolean;
}
interface PlannedRun {
  key: string;
  label: string;
  task: string;
  model: string;
  seconds: number | null;
  state: "planned" | "running" | "ended";
}
interface SearchAxis {
  name: string;
  choices?: string[];
  low?: number;
  high?: number;
  log?: boolean;
}
interface Trial {
  number: number;
  run: string;
  rank: number;
  value: number | null;
  status: string;
  settings: string[];
}
interface Search {
  key: string;
  model: string;
  condition: string;
  metric: string;
  goal: "min" | "max";
  split: string;
  axes: SearchAxis[];
  importance: Record<string, number> | null;
  trials: Trial[];
}
interface Index {
  columns: string[];
  conditions: Condition[];
  variants: Variant[];
  rows: Value[][];
  palette: string[];
  /** The tables and figures that show a run: their parts of the page, and their names. */
  appearances: Record<string, [string, string][]>;
  searches: Search[];
  sweeps: PlannedRun[][];
  /** The models of the user's own code, that of the last run first. */
  own: string[];
  /** The files of own models that are not layers. */
  plugins: Record<string, string>;
  /** The names of models for people. */
  names: Record<string, string>;
  /** How many runs of earlier versions of a model are left out, in words. */
  earlier: Record<string, string>;
  /** The fewest seeds of each model that can decide a comparison with one rival, with two, and so on. */
  deciding: number[];
}

/** A row of the index, with its variant and its condition. */
interface Run {
  key: string;
  variant: number;
  seed: number;
  status: string;
  epochs: number;
  iterations: number;
  total: number;
  end: number | null;
  final: number | null;
  best: number | null;
  /** The test at the best validation, of a run that validation data judge. */
  validated: number | null;
  seconds: number;
  started: string;
  tags: string[];
  message: string;
  label: string;
  model: string;
  group: string;
  parameters: number;
  stands: boolean;
  settings: Settings;
  title: string;
  task: string;
  metric: string;
  baseline: number | null;
  condition: Condition;
  /** What the search of words and of pairs reads, once it was asked for. */
  words?: string;
  values?: Map<string, string[]>;
}
/** The runs that differ by the seed alone, as one row. */
interface Group extends Run {
  runs: Run[];
  counts: Map<string, number>;
  ends: Spread;
  bests: Spread;
  validateds: Spread;
}
/** A result over seeds. */
interface Spread {
  value: number | null;
  low: number;
  high: number;
  count: number;
}
type Row = Run & Partial<Group>;
interface Column {
  name: string;
  value: (run: Row) => Value;
  title: string;
  shown: ((run: Row) => HTMLElement) | null;
  /** In rem. */
  width: number;
  numeric: boolean;
  /** Whether it is shown unless the reader chooses others. */
  isUsual: boolean;
  /** The value by which rows are sorted. */
  order: (run: Row) => Value;
  /** Rows are sorted within its values. */
  within: ((run: Row) => Value) | null;
}

/** A curve of a run: the number of its axis, its values, and the number of its points if some are left out. */
interface Curve {
  name: string;
  x: number;
  y: number[];
  of?: number;
}
/** A run with the details of its page. */
interface RunRecord extends Run {
  facts: Record<string, string>;
  solved: number | null;
  phases: Record<string, number>;
  untimed: string | null;
  memory: number | null;
  spec: { task: string; model: string; seed?: number; task_settings: Settings; model_settings: Settings; training: Settings };
  environment: string;
  perEpoch: number | null;
  curves: Curve[];
  traces: Curve[];
  trained: number[] | null;
  axes: number[][];
}

// The page's elements are HTML elements, except for those within figures and samples of lines.
interface ParentNode {
  querySelector<K extends keyof HTMLElementTagNameMap>(selectors: K): HTMLElementTagNameMap[K] | null;
  querySelector<E extends Element = HTMLElement>(selectors: string): E | null;
  querySelectorAll<K extends keyof HTMLElementTagNameMap>(selectors: K): NodeListOf<HTMLElementTagNameMap[K]>;
  querySelectorAll<E extends Element = HTMLElement>(selectors: string): NodeListOf<E>;
}
interface Element {
  closest<E extends Element = HTMLElement>(selectors: string): E | null;
}
/** A form of the page, with its fields by name. */
interface PageForm extends HTMLFormElement {
  elements: HTMLFormControlsCollection & Record<string, HTMLSelectElement & HTMLInputElement>;
}
