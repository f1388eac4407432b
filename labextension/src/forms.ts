/** The forms a notebook may start in, and how its choice is remembered in its own metadata. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { about } from './format';
import { IDemand } from './tokens';

export const FORMS = ['share', 'whole', 'several', 'none'] as const;
export type Form = (typeof FORMS)[number];

/** What is asked for; null: the person says how many, or the server's own default. */
export const DEMANDS: Record<Form, Partial<IDemand> | null> = {
  share: null,
  whole: { gpus: 1 },
  several: null,
  none: { gpus: 0 }
};

export function formName(form: Form, trans: TranslationBundle): string {
  switch (form) {
    case 'share':
      return trans.__('GPU share');
    case 'whole':
      return trans.__('whole GPU');
    case 'several':
      return trans.__('several GPUs…');
    case 'none':
      return trans.__('no GPU');
  }
}

/** "starts now", "about 4 min": when a demand could be met. */
export function outlook(eta: number | null, trans: TranslationBundle): string {
  return eta !== null && eta <= 0 ? trans.__('starts now') : about(eta, trans);
}

const KEPT = [
  'gpus',
  'memory',
  'exclusive',
  'constraints',
  'near',
  'kind',
  'horizon',
  'duration_s'
] as const;

function isSet(value: unknown): boolean {
  return (
    value !== null &&
    value !== undefined &&
    value !== false &&
    (typeof value !== 'object' || Object.values(value).some(isSet))
  );
}

/** What of a demand is written into a notebook's metadata under `gpushare`: only what says something. */
export function remembered(demand: Partial<IDemand>): Partial<IDemand> {
  return Object.fromEntries(
    KEPT.filter(field => field === 'gpus' || isSet(demand[field])).map(field => [
      field,
      demand[field]
    ])
  );
}

/** An empty notebook for a kernel, with its demand. */
export function emptyNotebook(
  kernel: { name: string; display_name: string },
  demand: Partial<IDemand> | null
): object {
  return {
    cells: [],
    metadata: {
      kernelspec: { name: kernel.name, display_name: kernel.display_name },
      ...(demand ? { gpushare: remembered(demand) } : {})
    },
    nbformat: 4,
    nbformat_minor: 5
  };
}
