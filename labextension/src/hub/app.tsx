/** The page's life: it draws what the model tells, asks for the past now and then, and carries out what is pressed. */
import { TranslationBundle } from '@jupyterlab/translation';
import { useCallback, useEffect, useMemo, useReducer, useState } from 'react';

import { Action, actionLabel, isSensible } from '../actions';
import { IApi } from '../api';
import { IUi, UiProvider } from '../components/context';
import { IArrived } from '../components/gpus';
import { Days } from '../components/usage';
import { Glyph } from '../components/marks';
import { IScope, READ_MS } from '../readings';
import { lookOf } from '../states';
import { IGPUShareModel, IHistory, ISession } from '../tokens';
import { IMenu, IQuestion, PopupMenu, Question } from './ask';
import { Page } from './page';

/** What can be done from here: what needs no notebook in front and no dialogue. */
const OFFERED: readonly Action[] = ['keep', 'unkeep', 'let-go', 'park', 'bring-back', 'stop'];
const KEEP_S = 3600;
const DAY_S = 86400;
const TICK_MS = 1000;
const AGAIN_MS = 60000; // the ledger sums in stretches of minutes
const REFUSAL_MS = 10000;

interface IAppProps {
  model: IGPUShareModel;
  api: IApi;
  trans: TranslationBundle;
}

export function App({ model, api, trans }: IAppProps): JSX.Element {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const [days, setDays] = useState<Days>(7);
  const [of, setOf] = useState<string | null>(null);
  const [scope, setScope] = useState<IScope>({});
  const [question, setQuestion] = useState<IQuestion | null>(null);
  const [menu, setMenu] = useState<IMenu | null>(null);
  const [refusal, setRefusal] = useState('');
  const history = useHistory(api, days, of);
  const arrived = useReadings(api, scope);

  useEffect(() => {
    const ticks = setInterval(() => document.visibilityState !== 'hidden' && draw(), TICK_MS);
    model.changed.connect(draw);
    draw(); // something may have been heard before
    return () => {
      clearInterval(ticks);
      model.changed.disconnect(draw);
    };
  }, [model]);
  useEffect(() => {
    const timer = refusal ? setTimeout(() => setRefusal(''), REFUSAL_MS) : undefined;
    return () => clearTimeout(timer);
  }, [refusal]);

  const { snapshot } = model;
  const admin = snapshot.status?.admin ?? false;
  const lasting = useMemo(() => {
    const tell = (error: Error): void => setRefusal(error.message);
    const act: IUi['act'] = async (action, id) => {
      switch (action) {
        case 'keep':
          return api.pin(id, KEEP_S);
        case 'unkeep':
          return api.act(id, 'unpin');
        case 'let-go':
          return api.act(id, 'release');
        case 'park':
          return api.act(id, 'park');
        case 'bring-back':
          return api.act(id, 'resume');
        case 'stop':
          return setQuestion({
            title: trans.__('Stop the kernel?'),
            text: trans.__(
              'The variables of %1 are lost.',
              model.snapshot.status?.sessions[id]?.label ?? ''
            ),
            label: trans.__('Stop'),
            yes: () => void api.act(id, 'stop').catch(tell)
          });
      }
    };
    const openMenu = (session: ISession, anchor: Element): void => {
      const { status } = model.snapshot;
      if (status && model.snapshot.kind === 'ready') {
        const look = lookOf(session, { status, snapshot: model.snapshot, now: Date.now() });
        const items = OFFERED.filter(action => isSensible(action, look, session)).map(action => ({
          key: action,
          label: actionLabel(action, look, trans),
          act: () => void act(action, session.id).catch(tell)
        }));
        setMenu(items.length > 0 ? { items, anchor } : null);
      }
    };
    const drain: IUi['drain'] = ({ server, device }, drained) => {
      const carryOut = (): void => void api.drain(device.uuid, drained).catch(tell);
      if (!drained) {
        return carryOut();
      }
      setQuestion({
        title: trans.__('Drain GPU %1, %2?', device.index, server.name),
        text: trans.__(
          'Nothing new starts on it, and what is there moves or is parked when it rests. It is offered again when you say so.'
        ),
        label: trans.__('Drain'),
        yes: carryOut
      });
    };
    return {
      trans,
      act,
      openMenu,
      drain,
      offered: OFFERED,
      byUse: admin,
      focused: null,
      rowKeys: false,
      reveal: () => undefined,
      retry: () => model.retry()
    };
  }, [admin, api, model, trans]);
  return (
    <UiProvider value={{ ...lasting, snapshot, now: Date.now() }}>
      <Page
        {...{ history, days, of, arrived, scope }}
        onDays={setDays}
        onUser={setOf}
        onScope={setScope}
      />
      {refusal && (
        <p className="jp-GPUShare-toast" role="alert">
          <Glyph look="refused" />
          {refusal}
        </p>
      )}
      {menu && <PopupMenu menu={menu} onEnd={() => setMenu(null)} />}
      {question && <Question question={question} onEnd={() => setQuestion(null)} />}
    </UiProvider>
  );
}

/** The past of the time and the user chosen. */
function useHistory(api: IApi, days: Days, of: string | null): IHistory | null {
  const ask = useCallback(async () => {
    const from = Date.now() / 1000 - days * DAY_S;
    const all = await api.history({ from });
    const series = of === null ? all.series : (await api.history({ from, user: of })).series;
    return { ...all, series };
  }, [api, days, of]);
  return useAsked(ask, AGAIN_MS);
}

/** The last hour of the GPUs chosen; null while those were not heard of. */
function useReadings(api: IApi, scope: IScope): IArrived | null {
  const ask = useCallback(
    async () => ({ readings: await api.readings(scope), at: Date.now(), scope }),
    [api, scope]
  );
  const heard = useAsked(ask, READ_MS);
  return heard?.scope === scope ? heard : null;
}

/** The newest answer, asked again after a while as long as somebody sees the page. */
function useAsked<T>(ask: () => Promise<T>, againMs: number): T | null {
  const [answer, setAnswer] = useState<T | null>(null);
  useEffect(() => {
    let gone = false;
    const take = (heard: T): void => {
      if (!gone) {
        setAnswer(heard);
      }
    };
    // What does not answer is told by the model; what was heard stays.
    const look = (): void =>
      void (document.visibilityState !== 'hidden' && ask().then(take, () => undefined));
    look();
    const timer = setInterval(look, againMs);
    document.addEventListener('visibilitychange', look);
    return () => {
      gone = true;
      clearInterval(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, [ask, againMs]);
  return answer;
}
