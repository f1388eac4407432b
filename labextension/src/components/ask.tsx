/** The form that asks for more: how many GPUs, how much memory, of which model, alone or not; and how long that takes. */
import { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useId, useState } from 'react';

import { about, modelName, shortModel } from '../format';
import { IDemand, IStatus } from '../tokens';

const GIB = 2 ** 30;

interface IAskProps {
  demand: IDemand;
  status: IStatus;
  trans: TranslationBundle;
  estimate(demand: IDemand): Promise<number | null>;
  /** Null while something is not usable. */
  onChange(demand: IDemand | null): void;
}

/** "0.5" and "2" are usable, "1.5" and "-1" are not: below 1 a part of a GPU, above it whole ones. */
export function gpusOf(text: string): number | null {
  const value = Number(text.replace(',', '.'));
  return text.trim() === '' ||
    !Number.isFinite(value) ||
    value < 0 ||
    (value > 1 && !Number.isInteger(value))
    ? null
    : value;
}

export function AskForm({ demand, status, trans, estimate, onChange }: IAskProps): JSX.Element {
  const [gpus, setGpus] = useState(String(demand.gpus));
  const [memory, setMemory] = useState(demand.memory ? String(demand.memory / GIB) : '');
  const [model, setModel] = useState(demand.constraints?.model ?? '');
  const [exclusive, setExclusive] = useState(demand.exclusive ?? false);
  const [outlook, setOutlook] = useState('');
  const id = useId();
  const wish = gpusOf(gpus);
  const gib = memory === '' ? null : Number(memory.replace(',', '.'));
  const problem =
    wish === null
      ? trans.__('GPUs: below 1 for a part of one, or a whole number.')
      : gib !== null && !(gib > 0)
        ? trans.__('Memory: GiB greater than 0, or nothing.')
        : '';
  const models = new Set(
    Object.values(status.servers).flatMap(server =>
      Object.values(server.devices).map(device => modelName(device.model))
    )
  );
  useEffect(() => {
    if (problem || wish === null) {
      onChange(null);
      return undefined;
    }
    const next: IDemand = {
      ...demand,
      gpus: wish,
      exclusive,
      memory: gib === null ? null : Math.round(gib * GIB),
      constraints: { ...demand.constraints, model: model || null }
    };
    onChange(next);
    const timer = setTimeout(() => {
      estimate(next).then(
        eta =>
          setOutlook(
            eta !== null && eta <= 0
              ? trans.__('Starts now.')
              : trans.__('Waits: %1.', about(eta, trans))
          ),
        (error: Error) => setOutlook(error.message)
      );
    }, 300);
    return () => clearTimeout(timer);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the rest stays the same while the dialog is open
  }, [wish, gib, model, exclusive, problem]);
  return (
    <div className="jp-GPUShare jp-GPUShare-ask">
      <label htmlFor={`${id}gpus`}>{trans.__('GPUs')}</label>
      <input
        id={`${id}gpus`}
        inputMode="decimal"
        value={gpus}
        onChange={event => setGpus(event.target.value)}
      />
      <label htmlFor={`${id}memory`}>{trans.__('Memory, GiB')}</label>
      <input
        id={`${id}memory`}
        inputMode="decimal"
        value={memory}
        onChange={event => setMemory(event.target.value)}
      />
      <label htmlFor={`${id}model`}>{trans.__('Model')}</label>
      <select id={`${id}model`} value={model} onChange={event => setModel(event.target.value)}>
        <option value="">{trans.__('any')}</option>
        {[...models].map(name => (
          <option key={name} value={shortModel(name)}>
            {name}
          </option>
        ))}
      </select>
      <label htmlFor={`${id}exclusive`}>{trans.__('Nobody beside me')}</label>
      <input
        id={`${id}exclusive`}
        type="checkbox"
        checked={exclusive}
        onChange={event => setExclusive(event.target.checked)}
      />
      <p role="status">{problem || outlook || '\u00a0'}</p>
    </div>
  );
}
