/** What is asked of the person: how much more, which device, and whether something may be lost. */
import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { IApi } from './api';
import { AskForm } from './components/ask';
import { Glyph } from './components/marks';
import { modelName, percent } from './format';
import { IPlace } from './lookup';
import { serversInOrder } from './order';
import { IDemand, ISession, IStatus } from './tokens';
import { deviceName, freeShare, isOffered } from './view';

/** The new demand, or null where the person thought better of it. */
export async function askFor(
  demand: IDemand,
  status: IStatus,
  api: IApi,
  trans: TranslationBundle
): Promise<IDemand | null> {
  let wish: IDemand | null = demand;
  const body = ReactWidget.create(
    <AskForm
      demand={demand}
      status={status}
      estimate={one => api.estimate(one)}
      trans={trans}
      onChange={one => (wish = one)}
    />
  );
  const { button } = await showDialog({
    title: trans.__('Ask for GPUs'),
    body,
    focusNodeSelector: 'input',
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Ask') })]
  });
  if (button.accept && wish === null) {
    throw new Error(trans.__('Not asked: a field was not usable.'));
  }
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

/** For how long a GPU is kept: seconds, or null. */
export async function askHowLong(trans: TranslationBundle): Promise<number | null> {
  let hours = 2;
  const choices = [1, 2, 4, 8, 24];
  const body = ReactWidget.create(
    <div className="jp-GPUShare jp-GPUShare-ask">
      <label htmlFor="jp-gpushare-keep">{trans.__('Keep it for')}</label>
      <select
        id="jp-gpushare-keep"
        defaultValue={hours}
        onChange={event => (hours = Number(event.target.value))}
      >
        {choices.map(choice => (
          <option key={choice} value={choice}>
            {trans._n('%1 hour', '%1 hours', choice)}
          </option>
        ))}
      </select>
    </div>
  );
  const { button } = await showDialog({
    title: trans.__('Keep the GPU'),
    body,
    focusNodeSelector: 'select',
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Keep') })]
  });
  return button.accept ? hours * 3600 : null;
}

export function tell(title: string, body: string, trans: TranslationBundle): Promise<unknown> {
  return showDialog({ title, body, buttons: [Dialog.okButton({ label: trans.__('Close') })] });
}

export async function confirm(title: string, body: string, label: string): Promise<boolean> {
  const { button } = await showDialog({
    title,
    body,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label })]
  });
  return button.accept;
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

export function confirmDrain(
  { server, device }: IPlace,
  trans: TranslationBundle
): Promise<boolean> {
  return confirmLoss(
    trans.__('Drain GPU %1, %2?', device.index, server.name),
    trans.__(
      'Nothing new starts on it, and what is there moves or is parked when it rests. It is offered again when you say so.'
    ),
    trans.__('Drain')
  );
}

/** What the doctor found that is not as it should be, each with its fix. */
export async function showCheck(api: IApi, trans: TranslationBundle): Promise<void> {
  const words = {
    ok: trans.__('works'),
    warning: trans.__('to be looked at'),
    missing: trans.__('not there'),
    broken: trans.__('broken')
  };
  const findings = (await api.doctor()).filter(({ state }) => state !== 'ok');
  const body = ReactWidget.create(
    <ul className="jp-GPUShare jp-GPUShare-check">
      {findings.length === 0 && <li>{trans.__('Nothing is missing and nothing is broken.')}</li>}
      {findings.map(({ check, state, finding, cause, fix }) => (
        <li key={check}>
          <Glyph
            look={state === 'broken' ? 'lost' : state === 'warning' ? 'warned' : 'none'}
            label={words[state]}
          />
          <span>
            <b>{check}</b> {[finding, cause, fix].filter(Boolean).join(' ')}
          </span>
        </li>
      ))}
    </ul>
  );
  await showDialog({
    title: trans.__('What works here'),
    body,
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}
