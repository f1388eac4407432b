/** The pages of docs/users with their pictures, as they are bundled; fetched when help is opened first. */
import ask from '../../docs/images/help-ask.png';
import magicPicture from '../../docs/images/help-magic.png';
import panelPicture from '../../docs/images/help-panel.png';
import parkedPicture from '../../docs/images/help-parked.png';
import reclaim from '../../docs/images/help-reclaim.png';
import waitingPicture from '../../docs/images/help-waiting.png';
import asking from '../../docs/users/asking.md';
import magic from '../../docs/users/magic.md';
import panel from '../../docs/users/panel.md';
import parked from '../../docs/users/parked.md';
import waiting from '../../docs/users/waiting.md';

const PICTURES: Record<string, string> = {
  ask,
  magic: magicPicture,
  panel: panelPicture,
  parked: parkedPicture,
  reclaim,
  waiting: waitingPicture
};

const PAGES = { panel, waiting, parked, asking, magic };
export type HelpPage = keyof typeof PAGES;

export function isPage(name: string): name is HelpPage {
  return Object.hasOwn(PAGES, name);
}

/** Its Markdown, with the addresses that the pictures have here. */
export function pageText(name: HelpPage): string {
  return PAGES[name].replace(
    /\.\.\/images\/help-(\w+)\.png/g,
    (_, picture: string) => PICTURES[picture]
  );
}
