/** Numbers, times and names as people read them. Pure; the language is the page's. */
import { TranslationBundle } from '@jupyterlab/translation';

const GIB = 2 ** 30;
export const UNREAD = '–';

const FORMATS = new Map<string, Intl.NumberFormat>();

/** Making a format takes a hundred times as long as using it. */
function formatOf(digits: number, style: 'decimal' | 'percent' = 'decimal'): Intl.NumberFormat {
  const language = document.documentElement.lang;
  const key = `${language} ${style} ${digits}`;
  const known = FORMATS.get(key);
  if (known) {
    return known;
  }
  const options = { style, minimumFractionDigits: digits, maximumFractionDigits: digits };
  const made = new Intl.NumberFormat(language || undefined, options);
  FORMATS.set(key, made);
  return made;
}

function number(value: number, digits = 0): string {
  return formatOf(digits).format(value);
}

/** "50%"; "–" where it was not read. */
export function percent(fraction: number | null): string {
  return fraction === null ? UNREAD : formatOf(0, 'percent').format(fraction);
}

/** "31.2", "120": GiB, one decimal below 100. */
export function gib(bytes: number | null): string {
  return bytes === null ? UNREAD : number(bytes / GIB, bytes / GIB < 99.95 ? 1 : 0);
}

export function memory(bytes: number | null): string {
  return bytes === null ? UNREAD : `${gib(bytes)} GiB`;
}

/** "2.1", "41": GB/s, one decimal below 10. */
export function gigabytes(perSecond: number | null): string {
  return perSecond === null ? UNREAD : number(perSecond, perSecond < 9.95 ? 1 : 0);
}

/** "47 / 80" GiB: whole numbers, a decimal only under 10 in use. */
export function occupied(used: number | null, total: number | null): string {
  const part = used === null ? UNREAD : number(used / GIB, used > 0 && used / GIB < 9.95 ? 1 : 0);
  return `${part} / ${total === null ? UNREAD : number(Math.round(total / GIB))}`;
}

/** "0.75", "3", "2.5": an amount of devices. */
export function devices(count: number): string {
  return number(
    count,
    Number.isInteger(Math.round(count * 100) / 100)
      ? 0
      : Number.isInteger(Math.round(count * 1000) / 100)
        ? 1
        : 2
  );
}

/** "1.4 GPU-h", "90 GPU-s" below a tenth of an hour. */
export function charged(gpuSeconds: number | null): string {
  if (gpuSeconds === null) {
    return UNREAD;
  }
  const hours = gpuSeconds / 3600;
  return hours < 0.1
    ? `${number(Math.round(gpuSeconds))} GPU-s`
    : `${number(hours, hours < 99.95 ? 1 : 0)} GPU-h`;
}

/** "0:24", only for a running countdown. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  const tail = String(whole % 60).padStart(2, '0');
  return hours > 0 ? `${hours}:${String(minutes).padStart(2, '0')}:${tail}` : `${minutes}:${tail}`;
}

/** "under a minute", "about 3 min", "more than an hour", "no estimate yet". */
export function about(seconds: number | null, trans: TranslationBundle): string {
  if (seconds === null) {
    return trans.__('no estimate yet');
  }
  if (seconds < 60) {
    return trans.__('under a minute');
  }
  return seconds > 90 * 60
    ? trans.__('more than an hour')
    : trans.__('about %1 min', number(Math.round(seconds / 60)));
}

/** "about 2 s", and from a minute on as `about`: for what comes soon. */
export function soon(seconds: number, trans: TranslationBundle): string {
  return seconds < 60
    ? trans.__('about %1 s', number(Math.max(1, Math.round(seconds))))
    : about(seconds, trans);
}

/** "50 s", "3 min", "2 h": how long something has lasted or lasts. */
export function span(seconds: number, trans: TranslationBundle): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) {
    return trans.__('%1 s', number(whole));
  }
  return whole < 90 * 60
    ? trans.__('%1 min', number(Math.floor(whole / 60)))
    : trans.__('%1 h', number(Math.floor(whole / 3600)));
}

/** "4 min 10 s" below ten minutes, else as `span`. */
export function exactSpan(seconds: number, trans: TranslationBundle): string {
  const whole = Math.max(0, Math.floor(seconds));
  return whole >= 60 && whole < 600
    ? trans.__('%1 min %2 s', number(Math.floor(whole / 60)), number(whole % 60))
    : span(whole, trans);
}

/** "16:05", of a moment in ms of Date.now. */
export function timeOfDay(ms: number): string {
  return new Intl.DateTimeFormat(document.documentElement.lang || undefined, {
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23'
  }).format(ms);
}

/** "14:02:11", of a moment in ms of Date.now. */
export function clockTime(ms: number): string {
  return new Intl.DateTimeFormat(document.documentElement.lang || undefined, {
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hourCycle: 'h23'
  }).format(ms);
}

/** "2 Dec", of a moment in ms of Date.now. */
export function dayOf(ms: number): string {
  return new Intl.DateTimeFormat(document.documentElement.lang || undefined, {
    day: 'numeric',
    month: 'short'
  }).format(ms);
}

/** "3rd": a place in line, in English rules where there is no translation. */
export function ordinal(place: number, trans: TranslationBundle): string {
  const endings: Record<string, string> = {
    one: trans.__('%1st', place),
    two: trans.__('%1nd', place),
    few: trans.__('%1rd', place)
  };
  return (
    endings[new Intl.PluralRules('en', { type: 'ordinal' }).select(place)] ??
    trans.__('%1th', place)
  );
}

/** "A100 80GB" of "NVIDIA A100-SXM4-80GB": what tells one card from another. */
export function modelName(model: string): string {
  return model
    .replace(/[-\s]+/g, ' ')
    .replace(/\b(NVIDIA|Tesla|GeForce|Graphics|Device)\b\s*/gi, '')
    .replace(/\s*\b(SXM\d*|PCIe|HBM\d\w?|NVL)\b/gi, '')
    .trim();
}

/** "A100", "RTX 4090": the shortest name that people know it by. */
export function shortModel(model: string): string {
  return modelName(model)
    .replace(/\s\d+GB\b/i, '')
    .replace(/\sMIG\s.*$/, '');
}

/** A name in two parts: the first gives way when room is short, the second stays. `.ipynb` is dropped. */
export function nameParts(label: string): [string, string] {
  const name = label.replace(/\.ipynb$/, '');
  return name.length <= 18 ? [name, ''] : [name.slice(0, -9), name.slice(-9)];
}
