/** The smallest marks: glyphs, icons, names, bold parts. */
import { CSSProperties, Fragment } from 'react';

import { nameParts } from '../format';
import { Look } from '../states';

/** CSS custom properties, by name without their dashes. */
export function vars(values: Record<string, number | string>): CSSProperties {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [`--${name}`, value]));
}

const line = { fill: 'none', stroke: 'currentColor' };
const half = <path d="M7 1.7a5.3 5.3 0 0 0 0 10.6z" fill="currentColor" />;
const mark = (height: number): JSX.Element => (
  <g className="jp-GPUShare-knockout">
    <path d={`M7 ${height}v3.6`} strokeWidth="1.5" strokeLinecap="round" />
    <circle cx="7" cy={height + 5.6} r=".9" />
  </g>
);

const SHAPES: Record<Look | 'simulated', JSX.Element> = {
  waiting: (
    <>
      <circle cx="7" cy="7" r="5.5" strokeWidth="1.6" {...line} />
      <path d="M7 3.8V7l2.3 1.5" strokeWidth="1.5" strokeLinecap="round" {...line} />
    </>
  ),
  bound: <circle cx="7" cy="7" r="5.2" strokeWidth="1.8" {...line} />,
  active: <circle cx="7" cy="7" r="6" fill="currentColor" />,
  idle: (
    <>
      <circle cx="7" cy="7" r="5.3" strokeWidth="1.5" {...line} />
      {half}
    </>
  ),
  pinned: (
    <>
      <circle cx="5.6" cy="8.4" r="4.6" strokeWidth="1.5" {...line} />
      <path d="M5.6 3.8a4.6 4.6 0 0 0 0 9.2z" fill="currentColor" />
      <path d="M8.2 5.8 11 3" strokeWidth="1.4" strokeLinecap="round" {...line} />
      <circle cx="11.6" cy="2.4" r="2.1" fill="currentColor" />
    </>
  ),
  warned: (
    <>
      <path d="M7 1 13.4 12.6H.6z" fill="currentColor" />
      {mark(5)}
    </>
  ),
  parking: (
    <>
      <rect
        x="1"
        y="1"
        width="12"
        height="12"
        rx="2.5"
        strokeWidth="1.6"
        strokeDasharray="3 1.6"
        {...line}
      />
      <path d="M5.2 4.6v4.8M8.8 4.6v4.8" strokeWidth="1.8" {...line} />
    </>
  ),
  parked: (
    <>
      <rect x="1" y="1" width="12" height="12" rx="2.5" strokeWidth="1.6" {...line} />
      <path d="M5.2 4.6v4.8M8.8 4.6v4.8" strokeWidth="1.8" {...line} />
    </>
  ),
  resuming: (
    <>
      <path d="M12.3 8.2A5.4 5.4 0 1 1 10.9 3.2" strokeWidth="1.7" {...line} />
      <path d="M13.4 1.2v4.4H9z" fill="currentColor" />
    </>
  ),
  none: <circle cx="7" cy="7" r="5.3" strokeWidth="1.5" strokeDasharray="2 2" {...line} />,
  lost: (
    <>
      <path d="m7 .6 6.4 6.4L7 13.4.6 7z" fill="currentColor" />
      {mark(4)}
    </>
  ),
  dead: <path d="m2.6 2.6 8.8 8.8m0-8.8-8.8 8.8" strokeWidth="2" strokeLinecap="round" {...line} />,
  refused: (
    <>
      <circle cx="7" cy="7" r="5.5" strokeWidth="1.5" {...line} />
      <path d="M4.2 7h5.6" strokeWidth="1.8" {...line} />
    </>
  ),
  simulated: (
    <rect
      x="1.5"
      y="1.5"
      width="11"
      height="11"
      strokeWidth="1.5"
      strokeDasharray="2.5 1.8"
      {...line}
    />
  )
};

/** A state's shape; without a label it is an ornament beside words that say the same. */
export function Glyph({ look, label }: { look: Look | 'simulated'; label?: string }): JSX.Element {
  const role = label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': true };
  return (
    <svg className="jp-GPUShare-glyph" data-look={look} viewBox="0 0 14 14" {...role}>
      {SHAPES[look]}
    </svg>
  );
}

const ICONS = {
  more: (
    <>
      <circle cx="2.5" cy="7" r="1.2" fill="currentColor" />
      <circle cx="7" cy="7" r="1.2" fill="currentColor" />
      <circle cx="11.5" cy="7" r="1.2" fill="currentColor" />
    </>
  ),
  arrow: <path d="M1.5 7h9M7 3l4 4-4 4" strokeWidth="1.5" {...line} />,
  down: <path d="m3 5 4 4 4-4" strokeWidth="1.5" {...line} />,
  right: <path d="m5 3 4 4-4 4" strokeWidth="1.5" {...line} />,
  close: <path d="m3 3 8 8m0-8-8 8" strokeWidth="1.4" {...line} />,
  search: (
    <>
      <circle cx="6" cy="6" r="4" strokeWidth="1.5" {...line} />
      <path d="m9 9 4 4" strokeWidth="1.5" {...line} />
    </>
  ),
  help: (
    <>
      <path
        d="M4.6 5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.2.9-1.2 1.8"
        strokeWidth="1.5"
        strokeLinecap="round"
        {...line}
      />
      <circle cx="7" cy="11.6" r=".9" fill="currentColor" />
    </>
  ),
  chart: <path d="M1.5 12.5h11M3 10V7m3 3V3m3 7V5m3 5V8" strokeWidth="1.5" {...line} />,
  settings: (
    <>
      <circle cx="7" cy="7" r="2" strokeWidth="1.4" {...line} />
      <path
        d="M7 1v2.2M7 10.8V13M1 7h2.2M10.8 7H13M2.8 2.8l1.5 1.5M9.7 9.7l1.5 1.5M11.2 2.8 9.7 4.3M4.3 9.7l-1.5 1.5"
        strokeWidth="1.4"
        {...line}
      />
    </>
  )
};

export function Icon({ name }: { name: keyof typeof ICONS }): JSX.Element {
  return (
    <svg className="jp-GPUShare-icon" data-icon={name} viewBox="0 0 14 14" aria-hidden="true">
      {ICONS[name]}
    </svg>
  );
}

/** A button that shows an icon only, and says what it does. */
export function IconButton({
  icon,
  label,
  onClick
}: {
  icon: keyof typeof ICONS;
  label: string;
  onClick: () => void;
}): JSX.Element {
  return (
    <button
      type="button"
      className="jp-GPUShare-iconButton"
      aria-label={label}
      title={label}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}

/** A notebook's name: the middle gives way, the end stays. */
export function Name({ label, title }: { label: string; title?: string }): JSX.Element {
  const [head, tail] = nameParts(label);
  return (
    <span className="jp-GPUShare-name" title={title ?? label}>
      <b>{head}</b>
      {tail && <i>{tail}</i>}
    </span>
  );
}

/** A text whose parts between two asterisks are bold. */
export function Rich({ text }: { text: string }): JSX.Element {
  return (
    <>
      {text.split('**').map((part, place) => (
        <Fragment key={place}>{place % 2 === 1 ? <b>{part}</b> : part}</Fragment>
      ))}
    </>
  );
}
