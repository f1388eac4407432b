/** The sentences behind the broker's short names, in the page's language; what has no name here stays as it was said. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

/** Why something was decided: of `why` in a decision. `text` is the broker's own sentence. */
export function reasonText(
  why: string | undefined,
  text: string,
  trans: TranslationBundle
): string {
  switch (why) {
    case 'bound':
      return trans.__(
        'The device that suits it best now. It holds nothing there until its first cell computes.'
      );
    case 'room':
      return trans.__('Its share is free there.');
    case 'lent':
      return trans.__(
        'It computes on room that idle notebooks lend. When they come back, its share shrinks.'
      );
    case 'guarantee':
      return trans.__('Its guaranteed share is its own, so its cell runs at once.');
    case 'spare':
      return trans.__('Nobody waits, so it has more devices than it asked for.');
    case 'given_back':
      return trans.__('It gives devices back beyond those it asked for: others wait, or it rests.');
    case 'leaving':
      return trans.__('The device it was on is being taken out of service.');
    case 'hot':
      return trans.__(
        'The device it was on is too hot to be fast. It moved while it was idle; nothing was lost.'
      );
    case 'makes_room':
      return trans.__(
        'It moved to another device while it was idle, so that a larger demand fits. Nothing was lost.'
      );
    case 'busy':
      return trans.__('It uses nearly all of its share, and there is room.');
    case 'quiet':
      return trans.__('It uses little of its share, and someone waits.');
    case 'neighbours':
      return trans.__('The notebooks beside it began or stopped computing.');
    case 'waiter':
      return trans.__('Someone is waiting, and it is idle.');
    case 'idle':
      return trans.__('It has been idle for long enough.');
    case 'withdrawn':
      return trans.__(
        'It is no longer needed: the notebook computes again, is kept, or nobody waits any more.'
      );
    case 'no_such_device':
      return trans.__('No GPU here is of the kind asked for.');
    case 'too_few_devices':
      return trans.__('No server here has that many GPUs of the kind asked for.');
    case 'too_few_in_all':
      return trans.__('All servers here together have fewer GPUs of the kind asked for.');
    case 'memory_too_large':
      return trans.__('No GPU here has that much memory.');
    case 'host_too_small':
      return trans.__('No server here with such a GPU has that many CPUs or that much memory.');
    case 'over_limit':
      return trans.__('That is more than your limit.');
    default:
      return text;
  }
}

/** Why another device lost: `text` is the same with figures, which only the broker's own language has. */
export function decisiveText(name: string, text: string, trans: TranslationBundle): string {
  const words: Record<string, string> = {
    compute: trans.__('less free compute'),
    data: trans.__('less free memory bandwidth'),
    fragmentation: trans.__('it would break up free room that larger demands need'),
    locality: trans.__('its data lies elsewhere'),
    thermal: trans.__('it is closer to its slowdown temperature'),
    energy: trans.__('it needs more power for the same work'),
    stability: trans.__('its load swings more'),
    room: trans.__('no room there now'),
    tie: trans.__('as good; the name settled it')
  };
  const word = words[name];
  return word === undefined ? text : word + text.replace(/^[^:]*/, '');
}
