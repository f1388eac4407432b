/** What is asked of the person: how much more, which device, and whether something may be lost. */
import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { useEffect, useId, useState } from 'react';

import { IApi } from './api';
import { about, modelName, percent } from './format';
import { serversInOrder } from './order';
import { IDemand, ISession, IStatus } from './tokens';
import { deviceName, freeShare, isOffered } from './view';

const GIB = 2 ** 30;

interface IAskProps {
  demand: IDemand;
  status: IStatus;
  trans: TranslationBundle;
  api: IApi;
  onChange(demand: IDemand): void;
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

export function AskForm({ demand, status, trans, api, onChange }: IAskProps): JSX.Element {
  const [gpus, setGpus] = useState(String(demand.gpus));
  const [memory, setMemory] = useState(demand.memory ? String(demand.memory / GIB) : '');
  const [model, setModel] = useState(demand.constraints?.model ?? '');
  const [exclusive, setExclusive] = useState(demand.exclusive ?? false);
  const [estimate, setEstimate] = useState('');
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
      api.estimate(next).then(
        eta =>
          setEstimate(
            eta !== null && eta <= 0
              ? trans.__('Starts now.')
              : trans.__('Waits: %1.', about(eta, trans))
          ),
        (error: Error) => setEstimate(error.message)
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
          <option key={name} value={name.split(' ')[0]}>
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
      <p role="status">{problem || estimate || '\u00a0'}</p>
    </div>
  );
}

/** The new demand, or null where the person thought better of it. */
export async function askForMore(
  session: ISession,
  status: IStatus,
  api: IApi,
  trans: TranslationBundle
): Promise<IDemand | null> {
  let wish = session.demand;
  const body = ReactWidget.create(
    <AskForm
      demand={session.demand}
      status={status}
      api={api}
      trans={trans}
      onChange={demand => (wish = demand)}
    />
  );
  const { button } = await showDialog({
    title: trans.__('Ask for more'),
    body,
    focusNodeSelector: 'input',
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Ask') })]
  });
  return button.accept ? wish : null;
}

/** Where to move: the uuid, or null. */
export async function askWhere(
  session: ISession,
  status: IStatus,
  trans: TranslationBundle
): Promise<string | null> {
  const own = new Set(session.devices.map(part => part.uuid));
  const places = serversInOrder(status).flatMap(server =>
    Object.values(server.devices)
      .filter(device => !own.has(device.uuid) && isOffered(server, device))
      .map(device => ({ server, device }))
  );
  let choice = places[0]?.device.uuid ?? null;
  if (choice === null) {
    await tell(trans.__('Move to another GPU'), trans.__('No other GPU is offered now.'), trans);
    return null;
  }
  const body = ReactWidget.create(
    <div className="jp-GPUShare jp-GPUShare-ask">
      <label htmlFor="jp-gpushare-move">{trans.__('To')}</label>
      <select id="jp-gpushare-move" onChange={event => (choice = event.target.value)}>
        {places.map(place => (
          <option key={place.device.uuid} value={place.device.uuid}>
            {`${deviceName(status, place)} · ${modelName(place.device.model)} · ${trans.__('%1 free', percent(freeShare(place.server, place.device)))}`}
          </option>
        ))}
      </select>
    </div>
  );
  const { button } = await showDialog({
    title: trans.__('Move to another GPU'),
    body,
    focusNodeSelector: 'select',
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Move') })]
  });
  return button.accept ? choice : null;
}

export function tell(title: string, body: string, trans: TranslationBundle): Promise<unknown> {
  return showDialog({ title, body, buttons: [Dialog.okButton({ label: trans.__('Close') })] });
}

/** Only for what loses something. */
export async function confirmLoss(title: string, body: string, label: string): Promise<boolean> {
  const { button } = await showDialog({
    title,
    body,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label })]
  });
  return button.accept;
}
