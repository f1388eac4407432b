/** Carries out what a person asks for a session. Each rejects with what the server said. */
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { KernelAPI } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { Action } from './actions';
import { IApi } from './api';
import { Depth } from './depthview';
import { askFor, askHowLong, askWhere, confirm, confirmLoss, tell } from './dialogs';
import { kernelOf } from './focus';
import { IPreferences } from './live';
import { Refusal } from './request';
import { remember } from './starting';
import { IDemand, IGPUShareModel, ISession, IStatus } from './tokens';

const KEEP_S = 3600;
const OFFER_MS = 10000;

interface IActingOptions {
  api: IApi;
  model: IGPUShareModel;
  tracker: INotebookTracker | null;
  trans: TranslationBundle;
  preferences: IPreferences;
  look(session: ISession, depth: Depth): void;
}

export function createAct(options: IActingOptions): (action: Action, id: string) => Promise<void> {
  const { api, model, tracker, trans, preferences, look } = options;

  const restart = async (session: ISession): Promise<void> => {
    const sure = await confirmLoss(
      trans.__('Restart the kernel?'),
      trans.__('The variables of %1 are lost. It gets its GPU when it runs again.', session.label),
      trans.__('Restart')
    );
    if (sure) {
      const panel = tracker?.find(candidate => kernelOf(candidate) === session.id);
      await (panel?.sessionContext.session?.kernel?.restart() ??
        KernelAPI.restartKernel(session.id, api.settings));
    }
  };

  const ask = async (session: ISession, status: IStatus): Promise<void> => {
    const demand = await askFor(session.demand, status, api, trans);
    if (demand) {
      await request(session, demand);
      const panel = tracker?.find(candidate => kernelOf(candidate) === session.id);
      if (panel) {
        await remember(panel, demand, api);
      }
    }
  };

  /** What cannot be had without a restart is reserved first, if the person wants it so. */
  const request = async (session: ISession, demand: IDemand): Promise<void> => {
    try {
      await api.request(session.id, demand);
    } catch (error) {
      if (!(error instanceof Refusal) || error.reason !== 'restart_required') {
        throw error;
      }
      const sure = await confirm(
        trans.__('Needs a kernel restart'),
        trans.__(
          '%1 The GPUs are reserved first; you restart when they are ready.',
          error.message.replace(/^Needs a kernel restart\. /, '')
        ),
        trans.__('Reserve')
      );
      if (sure) {
        await api.request(session.id, demand, 'restart');
      }
    }
  };

  /** What was done, and its opposite for ten seconds. */
  const offer = (text: string, label: string, undo: () => Promise<void>): void => {
    if (preferences.notifications.done !== false) {
      Notification.emit(text, 'default', {
        autoClose: OFFER_MS,
        actions: [
          {
            label,
            callback: () => void undo().catch((error: Error) => Notification.error(error.message))
          }
        ]
      });
    }
  };

  return async (action, id) => {
    const { status } = model.snapshot;
    const session = status?.sessions[id];
    if (!status || (!session && action !== 'stop')) {
      throw new Error(trans.__('This notebook has no place in the GPU service.'));
    }
    if (!session) {
      return api.act(id, 'stop'); // what an ended notebook left on a device
    }
    switch (action) {
      case 'keep':
        await api.pin(id, KEEP_S);
        return offer(trans.__('%1 is kept for an hour.', session.label), trans.__('Undo'), () =>
          api.act(id, 'unpin')
        );
      case 'keep-for': {
        const seconds = await askHowLong(trans);
        return seconds === null ? undefined : api.pin(id, seconds);
      }
      case 'unkeep': {
        const left = session.pinned_until_s ?? KEEP_S;
        await api.act(id, 'unpin');
        return offer(trans.__('%1 is not kept any more.', session.label), trans.__('Undo'), () =>
          api.pin(id, left)
        );
      }
      case 'let-go':
        await api.act(id, 'release');
        return offer(trans.__('%1 let its GPU go.', session.label), trans.__('Ask again'), () =>
          api.request(id, session.demand)
        );
      case 'park':
        await api.act(id, 'park');
        return offer(trans.__('%1 is being parked.', session.label), trans.__('Bring back'), () =>
          api.act(id, 'resume')
        );
      case 'bring-back':
        return api.act(id, 'resume');
      case 'ask-for-more':
        return ask(session, status);
      case 'take-one':
        return request(session, { ...session.demand, gpus: 1 });
      case 'move': {
        const device = await askWhere(session, status, trans);
        return device === null ? undefined : api.move(id, device);
      }
      case 'why':
        return look(session, 'why');
      case 'timeline':
        return look(session, 'timeline');
      case 'restart':
        return restart(session);
      case 'interrupt':
        return KernelAPI.interruptKernel(id, api.settings);
      case 'what-is-lost':
        await tell(
          trans.__('What is lost?'),
          trans.__(
            'What lay in the GPU’s memory: tensors and models on it. What the kernel holds in RAM lives on.'
          ),
          trans
        );
        return;
      case 'stop': {
        const sure = await confirmLoss(
          trans.__('Stop the kernel?'),
          trans.__('The variables of %1 are lost.', session.label),
          trans.__('Stop')
        );
        return sure ? api.act(id, 'stop') : undefined;
      }
    }
  };
}
