/** A long list of lines of known heights: only those in sight are drawn, and the keyboard reaches all of them. */
import {
  KeyboardEvent,
  ReactNode,
  RefObject,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState
} from 'react';

import { buttonFrom, keepOneStop } from './keys';

const BEYOND_PX = 240; // drawn above and below what is in sight
const FIRST = 60; // lines, before anything can be measured
const STEP = 2; // lines: the window moves in steps, small ones, so that no frame draws many

interface IProps<T> {
  items: readonly T[];
  keyOf(item: T): string;
  heightOf(item: T): number;
  /** What type-ahead looks at. */
  textOf(item: T): string;
  /** One element with `data-stop` and `data-key`. */
  draw(item: T): ReactNode;
  role: 'list' | 'tree';
  label: string;
  className?: string;
  /** A key on a line itself; true: it was used. `go` moves the focus to another line. */
  onKey?(event: KeyboardEvent<HTMLElement>, item: T, go: (key: string) => void): boolean;
}

export function VirtualList<T>(props: IProps<T>): JSX.Element {
  const { items, keyOf, heightOf, textOf, draw, role, label, className, onKey } = props;
  const ref = useRef<HTMLDivElement>(null);
  const wanted = useRef<string | null>(null);
  const [, redraw] = useState(0);
  const offsets = useMemo(() => offsetsOf(items, heightOf), [items, heightOf]);
  const [from, to] = useWindow(ref, offsets);

  useLayoutEffect(() => {
    if (wanted.current !== null) {
      const key = CSS.escape(wanted.current);
      const line = ref.current?.querySelector<HTMLElement>(`[data-key="${key}"]`);
      if (line) {
        wanted.current = null;
        line.focus();
      }
    }
  });
  useEffect(() => {
    const list = ref.current;
    if (list && !list.querySelector('[data-stop][tabindex="0"]')) {
      list.querySelector('[data-stop]')?.setAttribute('tabindex', '0');
    }
  });

  const go = (key: string): void => {
    const index = items.findIndex(item => keyOf(item) === key);
    if (index >= 0 && ref.current) {
      wanted.current = key;
      bringInSight(ref.current, offsets[index], offsets[index + 1]);
      redraw(count => count + 1);
    }
  };
  const onKeyDown = (event: KeyboardEvent<HTMLElement>): void => {
    const target = event.target as HTMLElement;
    const stop = target.closest<HTMLElement>('[data-stop]');
    const at = items.findIndex(item => keyOf(item) === stop?.dataset.key);
    if (!stop || at < 0 || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const onLine = target === stop;
    const rightToLeft = getComputedStyle(event.currentTarget).direction === 'rtl';
    const forth = rightToLeft ? 'ArrowLeft' : 'ArrowRight';
    const back = rightToLeft ? 'ArrowRight' : 'ArrowLeft';
    const to = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      Home: 0,
      End: items.length - 1
    }[event.key];
    if (to !== undefined) {
      if (items[to]) {
        go(keyOf(items[to]));
      }
    } else if (onLine && onKey?.(event, items[at], go)) {
      // it was for the line
    } else if (event.key === forth || event.key === back) {
      const button = buttonFrom(stop, target, event.key === forth ? 1 : -1);
      (button ?? (event.key === back ? stop : target)).focus();
    } else if (onLine && /^[\p{L}\p{N}]$/u.test(event.key)) {
      const found = [...items.slice(at + 1), ...items.slice(0, at)].find(item =>
        textOf(item).toLowerCase().startsWith(event.key.toLowerCase())
      );
      if (found === undefined) {
        return;
      }
      go(keyOf(found));
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      ref={ref}
      className={className}
      role={role}
      aria-label={label}
      onKeyDown={onKeyDown}
      onFocus={keepOneStop}
      style={{
        paddingBlockStart: offsets[from],
        paddingBlockEnd: offsets[items.length] - offsets[to]
      }}
    >
      {items.slice(from, to).map(draw)}
    </div>
  );
}

function offsetsOf<T>(items: readonly T[], heightOf: (item: T) => number): number[] {
  const offsets = [0];
  for (const item of items) {
    offsets.push(offsets[offsets.length - 1] + heightOf(item));
  }
  return offsets;
}

/** The first index whose offset is beyond `px`, by halving. */
function indexAt(offsets: number[], px: number): number {
  let [low, high] = [0, offsets.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle + 1] <= px) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

function scrollerOf(list: HTMLElement): HTMLElement | null {
  return list.closest<HTMLElement>('[data-scrolls]');
}

function bringInSight(list: HTMLElement, top: number, bottom: number): void {
  const scroller = scrollerOf(list);
  if (scroller) {
    const start = list.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
    const above = start + top;
    const below = start + bottom - scroller.clientHeight;
    scroller.scrollTop += above < 0 ? above : below > 0 ? below : 0;
  }
}

/** The lines to draw now: from the first to before the last. */
function useWindow(ref: RefObject<HTMLDivElement>, offsets: number[]): [number, number] {
  const count = offsets.length - 1;
  const [range, setRange] = useState<[number, number]>([0, FIRST]);
  useLayoutEffect(() => {
    const list = ref.current;
    const scroller = list && scrollerOf(list);
    if (!list || !scroller) {
      return undefined;
    }
    const measure = (): void => {
      const height = scroller.clientHeight;
      if (height === 0) {
        return; // hidden, or not laid out
      }
      const top = scroller.getBoundingClientRect().top - list.getBoundingClientRect().top;
      const first = Math.floor(indexAt(offsets, top - BEYOND_PX) / STEP) * STEP;
      const last = Math.ceil((indexAt(offsets, top + height + BEYOND_PX) + 1) / STEP) * STEP;
      setRange(old => (old[0] === first && old[1] === last ? old : [first, last]));
    };
    measure();
    scroller.addEventListener('scroll', measure, { passive: true });
    const sizes = new ResizeObserver(measure);
    sizes.observe(scroller);
    return () => {
      scroller.removeEventListener('scroll', measure);
      sizes.disconnect();
    };
  }, [ref, offsets]);
  return [Math.min(range[0], count), Math.min(range[1], count)];
}
