/** Where the hub's page begins: whose it is, in which language, and where its service is. */
import type { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { createRoot } from 'react-dom/client';

import { createApi } from '../api';
import { GPUShareModel } from '../model';
import { Tabs } from '../tabs';
import { App } from './app';
import { bundle, Messages } from './language';

/** Names of the catalogues beside this script, by language; filled in when it is built. */
declare const CATALOGUES: Record<string, string>;

/** The first language of the browser that there is a catalogue of; English needs none. */
async function chosen(): Promise<TranslationBundle> {
  for (const wanted of navigator.languages) {
    const [language] = wanted.toLowerCase().split('-');
    if (language === 'en') {
      break;
    }
    if (CATALOGUES[language]) {
      const answer = await fetch(`page/built/${CATALOGUES[language]}`);
      if (answer.ok) {
        const trans = bundle(language, (await answer.json()) as Messages);
        document.documentElement.lang = language;
        document.title = trans.__('GPUs of this hub');
        return trans;
      }
      break;
    }
  }
  return bundle('en');
}

async function start(): Promise<void> {
  const xsrf = document.querySelector<HTMLMetaElement>('meta[name="xsrf"]')?.content ?? '';
  const prefix = location.pathname.replace(/[^/]*$/, '');
  const request = (url: string, init: RequestInit): Promise<Response> =>
    fetch(url, { ...init, headers: { ...init.headers, 'X-XSRFToken': xsrf } });
  const settings = { baseUrl: prefix } as ServerConnection.ISettings;
  const api = createApi(settings, request, `${prefix}api/v1`);
  const trans = await chosen();
  const model = new GPUShareModel({ api, tabs: new Tabs(prefix + xsrf) });
  model.changed.connect(() => {
    if (model.snapshot.kind === 'absent') {
      location.reload(); // the login has ended: the page itself leads there
    }
  });
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const name = (): void =>
    void (document.body.dataset.jpThemeName = dark.matches ? 'dark' : 'light');
  dark.addEventListener('change', name); // charts are drawn anew in the new colours
  name();
  const root = document.getElementById('page');
  if (root) {
    createRoot(root).render(<App model={model} api={api} trans={trans} />);
  }
}

void start();
