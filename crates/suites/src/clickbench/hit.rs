//! The data of a hit: user, page, referrer and time.
//!
//! A value is drawn from the row, from the row's user, or from its page, so that rows of one user
//! agree on location and browser, and rows of one page on its title.

use crate::random::{Digits, Purpose, Stream, skewed, steep};

/// 2013-07-01 in days since 1970-01-01.
pub(super) const FIRST_DAY: u64 = 15_887;
const DAY_S: u64 = 86_400;
const MONTH_S: u64 = 31 * DAY_S;
/// Hits arrive in time order, except within this many seconds.
const DISORDER_S: u64 = 600;

/// Positions in a stream for one row or one user: a column's own draw is at the column's number,
/// draws shared by several columns above them.
const DRAWS: u64 = 128;

/// Draws that several columns of a row share.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
enum Shared {
    User = 106,
    Site = 107,
    Page = 108,
    Source = 109,
    Origin = 110,
    Phrase = 111,
    Time = 112,
    Device = 113,
    Ip = 114,
    OtherIp = 115,
    Region = 116,
    Screen = 117,
}

/// The number of sites.
pub(super) const SITES: u64 = 1_000;
/// The most frequent site's CounterID.
const COUNTER_OF_FIRST_SITE: i32 = 62;
/// Regions of users; a prime, so that multiples of another number are all different.
const REGIONS: u64 = 5_009;
/// The number of the user with the identifier that a query asks for.
const KNOWN_USER: u64 = 7;
const KNOWN_USER_ID: i64 = 435_090_932_899_640_449;
/// Hashes that queries ask for: those of the first site's first two pages.
const KNOWN_HASHES: [i64; 2] = [2_868_770_270_353_813_622, 3_594_120_000_172_545_465];

/// Width and height of screens in pixels, the most frequent first.
const SCREENS: [(i16, i16); 16] = [
    (1366, 768),
    (1920, 1080),
    (1280, 1024),
    (1280, 800),
    (1024, 768),
    (1600, 900),
    (1440, 900),
    (1680, 1050),
    (1280, 720),
    (1360, 768),
    (1920, 1200),
    (1152, 864),
    (1638, 922),
    (2560, 1440),
    (800, 600),
    (0, 0),
];
const MOBILE_SCREENS: [(i16, i16); 5] =
    [(320, 480), (768, 1024), (480, 800), (360, 640), (240, 320)];

/// The numbers of users, pages and phrases, and the draws.
#[derive(Debug)]
pub(super) struct Model {
    rows: u64,
    users: u64,
    /// Per site.
    pages: u64,
    phrases: u64,
    draws: Stream,
    user_draws: Stream,
    titles: Stream,
    words: Stream,
}

/// A page of a site, both counted from 0 by frequency; page 0 is the front page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) site: u32,
    pub(super) number: u32,
}

/// The kind of a URL or Referer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    None,
    Page(Page),
    /// A search engine's result page for a phrase.
    Search {
        engine: i16,
        phrase: u32,
    },
}

/// How a user came to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// From another page of the site.
    Internal,
    Direct,
    Link,
    Search,
    Advertisement,
    Saved,
    Undefined,
    External,
    Social,
}

impl Model {
    pub(super) fn new(rows: u64, seed: u64) -> Self {
        Self {
            rows,
            users: 100 + rows / 6,
            pages: 100 + rows / 500,
            phrases: 100 + rows / 20,
            draws: Stream::new(seed, Purpose::Hit),
            user_draws: Stream::new(seed, Purpose::HitUser),
            titles: Stream::new(seed, Purpose::HitTitle),
            words: Stream::new(seed, Purpose::HitPhrase),
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn hit(&self, row: u64) -> Hit<'_> {
        let draw = |what: Shared| self.draws.draw(row * DRAWS + what as u64);
        let page = Page {
            site: steep(draw(Shared::Site), SITES) as u32,
            number: skewed(draw(Shared::Page), self.pages) as u32,
        };
        Hit {
            model: self,
            row,
            user: skewed(draw(Shared::User), self.users),
            page,
            source: source(draw(Shared::Source)),
        }
    }

    /// Draws for a page's title.
    pub(super) fn title(&self, page: Page) -> Digits {
        self.titles.digits(u64::from(page.number) * SITES + u64::from(page.site))
    }

    /// Draws for the words of a phrase.
    pub(super) fn phrase(&self, phrase: u32) -> Digits {
        self.words.digits(phrase.into())
    }
}

fn source(draw: u64) -> Source {
    match draw >> 57 {
        0..56 => Source::Internal,
        56..76 => Source::Direct,
        76..94 => Source::Link,
        94..112 => Source::Search,
        112 => Source::Advertisement,
        113..115 => Source::Saved,
        115 => Source::Undefined,
        116..124 => Source::External,
        _ => Source::Social,
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit<'a> {
    pub(super) model: &'a Model,
    pub(super) row: u64,
    pub(super) user: u64,
    pub(super) page: Page,
    pub(super) source: Source,
}

impl Hit<'_> {
    fn draw(&self, what: Shared) -> u64 {
        self.model.draws.draw(self.row * DRAWS + what as u64)
    }

    fn user_draw(&self, what: Shared) -> u64 {
        self.model.user_draws.draw(self.user * DRAWS + what as u64)
    }

    /// The draws of a column for this row and for this row's user.
    pub(super) fn own(&self, column: u64) -> Own {
        Own {
            row: self.model.draws.draw(self.row * DRAWS + column),
            user: self.model.user_draws.draw(self.user * DRAWS + column),
        }
    }

    /// Seconds since 1970-01-01, within July 2013.
    pub(super) fn time_s(&self) -> i64 {
        // Rows are at most 10^10, seconds fewer than 2^22.
        let passed = self.row * (MONTH_S - DISORDER_S) / self.model.rows;
        let late = skewed(self.draw(Shared::Time), DISORDER_S);
        (FIRST_DAY * DAY_S + passed + late) as i64
    }

    pub(super) fn counter(&self) -> i32 {
        match self.page.site {
            0 => COUNTER_OF_FIRST_SITE,
            // 7919 and the prime above it have no factor in common: all are different.
            site => 1_000 + (site as i32 * 7_919) % 100_003,
        }
    }

    pub(super) fn user_id(&self) -> i64 {
        match self.user {
            KNOWN_USER => KNOWN_USER_ID,
            _ => (self.user_draw(Shared::User) >> 1) as i64,
        }
    }

    pub(super) fn region(&self) -> i32 {
        let place = steep(self.user_draw(Shared::Region), REGIONS);
        (229 + place * 1_741) as i32 % REGIONS as i32
    }

    /// One hit in eight comes from an unusual place of its user.
    pub(super) fn ip(&self) -> i32 {
        let seldom = self.draw(Shared::Ip) >> 61 == 0;
        let what = if seldom { Shared::OtherIp } else { Shared::Ip };
        // Four less than there are, so that a little may be subtracted.
        let below = Digits::new(self.user_draw(what)).below(u32::MAX - 3);
        (i64::from(below) + i64::from(i32::MIN) + 4) as i32
    }

    /// The user's phone in a list; 0 is none.
    pub(super) fn phone(&self, phones: usize) -> usize {
        let draw = self.user_draw(Shared::Device);
        if draw >> 60 > 0 { 0 } else { 1 + skewed(draw << 4, phones as u64 - 1) as usize }
    }

    /// Width and height in pixels.
    pub(super) fn screen(&self, is_mobile: bool) -> (i16, i16) {
        let screens = if is_mobile { MOBILE_SCREENS.as_slice() } else { SCREENS.as_slice() };
        screens[skewed(self.user_draw(Shared::Screen), screens.len() as u64) as usize]
    }

    /// 2, 3 or others for hits that come from a search; 0.
    pub(super) fn search_engine(&self) -> i16 {
        let draw = self.draw(Shared::Origin);
        match self.source {
            Source::Search => [2, 2, 2, 2, 2, 3, 3, 4][(draw >> 61) as usize],
            _ => 0,
        }
    }

    /// The searched phrase, if known.
    pub(super) fn phrase(&self) -> Option<u32> {
        let draw = self.draw(Shared::Phrase);
        let is_known = self.source == Source::Search && draw & 15 > 0;
        is_known.then(|| skewed(draw, self.model.phrases) as u32)
    }

    /// Few hits have none.
    pub(super) fn url(&self) -> Address {
        match self.draw(Shared::Page) & 1023 {
            0 => Address::None,
            _ => Address::Page(self.page),
        }
    }

    pub(super) fn referer(&self) -> Address {
        let draw = self.draw(Shared::Origin);
        let number = skewed(draw, self.model.pages) as u32;
        match (self.source, self.phrase()) {
            (Source::Direct | Source::Saved | Source::Undefined, _) => Address::None,
            // Of the pages within a site the second leads to many others.
            (Source::Internal, _) => {
                let number = if draw & 3 == 0 { 1 } else { number };
                Address::Page(Page { site: self.page.site, number })
            }
            (Source::Search, Some(phrase)) => {
                Address::Search { engine: self.search_engine(), phrase }
            }
            _ => {
                let site = steep(self.draw(Shared::Phrase), SITES) as u32;
                Address::Page(Page { site, number })
            }
        }
    }
}

impl Address {
    /// Equal for equal texts.
    pub(super) fn hash(self) -> i64 {
        let of = |kind, a: u32, b: u32| {
            let position = u64::from(a) << 32 | u64::from(b);
            (Stream::new(kind, Purpose::HitTitle).draw(position) >> 1) as i64
        };
        match self {
            Self::None => 0,
            Self::Page(Page { site: 0, number: number @ 0..2 }) => KNOWN_HASHES[number as usize],
            Self::Page(Page { site, number }) => of(0, site, number),
            Self::Search { engine, phrase } => of(1, engine as u32, phrase),
        }
    }
}

/// One column's draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) row: u64,
    user: u64,
}

impl Own {
    /// A number in 0..n.
    pub(super) fn below(self, n: u32) -> i32 {
        Digits::new(self.row).below(n) as i32
    }

    /// A number in 0..n, small ones are frequent.
    pub(super) fn skewed(self, n: u32) -> i32 {
        steep(self.row, n.into()) as i32
    }

    /// Whether this is one of this many rows.
    pub(super) fn one_in(self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// A number in 0..n, the same in all rows of a user; small ones are frequent.
    pub(super) fn of_user(self, n: u32) -> i32 {
        skewed(self.user, n.into()) as i32
    }

    /// Whether the user is one of this many.
    pub(super) fn one_user_in(self, n: u32) -> bool {
        Digits::new(self.user).below(n) == 0
    }
}
