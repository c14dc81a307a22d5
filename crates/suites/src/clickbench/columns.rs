//! The 105 columns: name, type, and how a value is computed from its row.

use super::{
    hit::{Address, Hit, Own, Source},
    texts::{push_address, push_phrase, push_title},
};
use crate::columns::TextBuilder;

/// A column's type and values. The functions get the row and the column's own draws.
pub(super) enum Values {
    Int16(fn(&Hit<'_>, Own) -> i16),
    Int32(fn(&Hit<'_>, Own) -> i32),
    Int64(fn(&Hit<'_>, Own) -> i64),
    /// Seconds since 1970-01-01; written as microseconds.
    Time(fn(&Hit<'_>, Own) -> i64),
    /// Days since 1970-01-01.
    Date(fn(&Hit<'_>, Own) -> i32),
    /// One of a list of at most 100 texts.
    Word(&'static [&'static str], fn(&Hit<'_>, Own) -> usize),
    /// Text with few repetitions, appended, of about this many bytes.
    Text(usize, fn(&Hit<'_>, Own, &mut TextBuilder)),
}

use Values::{Date, Int16, Int32, Int64, Text, Time, Word};

/// Number of a manufacturer, and the model. The first is none.
const PHONES: [(i16, &str); 24] = [
    (0, ""),
    (1, "iPad"),
    (1, "iPhone"),
    (2, "GT-I9100"),
    (2, "GT-I9300"),
    (3, "A500"),
    (3, "A501"),
    (4, "N8-00"),
    (4, "E71"),
    (4, "C5-00"),
    (5, "LT26i"),
    (5, "ST25i"),
    (6, "Desire S"),
    (6, "One X"),
    (6, "Wildfire S"),
    (7, "Optimus L5"),
    (7, "P500"),
    (8, "Curve 8520"),
    (8, "Bold 9700"),
    (9, "U8800"),
    (10, "IdeaTab A2109A"),
    (11, "Xoom"),
    (12, "Nexus 7"),
    (13, "Lumia 800"),
];
const MODELS: [&str; PHONES.len()] = {
    let mut models = [""; PHONES.len()];
    let mut phone = 0;
    while phone < models.len() {
        models[phone] = PHONES[phone].1;
        phone += 1;
    }
    models
};
const FLASH_MINOR: [&str; 8] =
    ["", "700", "700.224", "800.94", "602.180", "202.235", "300.257", "0"];
const AGENT_MINOR: [&str; 12] = ["0", "1", "2", "3", "4", "5", "6", "", "10", "12", "D", "i9"];
const CHARSETS: [&str; 4] = ["utf-8", "windows-1251", "koi8-r", ""];
const COLORS: [&str; 5] = ["F", "E", "D", "T", "5"];
const LANGUAGES: [&str; 8] = ["ru", "en", "uk", "tr", "be", "kk", "de", ""];
const COUNTRIES: [&str; 8] = ["RU", "UA", "TR", "BY", "KZ", "DE", "US", ""];
const NETWORKS: [&str; 5] = ["", "vkontakte", "facebook", "odnoklassniki", "twitter"];
const ACTIONS: [&str; 4] = ["", "like", "share", "tweet"];
const CURRENCIES: [&str; 4] = ["", "RUB", "USD", "UAH"];
const SERVICES: [&str; 4] = ["", "direct.example", "begun.example", "market.example"];
const CAMPAIGNS: [&str; 6] = ["", "summer", "sale", "brand", "banner", "1234567"];
const UTM_SOURCES: [&str; 6] = ["", "yandex", "google", "mail", "newsletter", "vk"];
const UTM_MEDIA: [&str; 4] = ["", "cpc", "banner", "email"];
const TERMS: [&str; 6] = ["", "билеты", "отдых", "машина", "hd", "video"];
const TAGS: [&str; 4] = ["", "top", "footer", "rss"];
/// Minutes east of Greenwich.
const ZONES: [i16; 6] = [240, 180, 300, 360, 120, 0];
const AGES: [i16; 6] = [0, 25, 35, 18, 45, 55];

fn phone(hit: &Hit<'_>) -> usize {
    hit.phone(PHONES.len())
}

fn screen(hit: &Hit<'_>) -> (i16, i16) {
    hit.screen(phone(hit) > 0)
}

fn zone(hit: &Hit<'_>) -> i16 {
    ZONES[hit.region() as usize % 16 * ZONES.len() / 32]
}

/// The word 0 except in one of this many rows.
fn seldom(own: Own, rows: u32, words: &[&str]) -> usize {
    let mut digits = crate::random::Digits::new(own.row);
    match digits.below(rows) {
        0 => 1 + digits.below(words.len() as u32 - 1) as usize,
        _ => 0,
    }
}

/// In order.
pub(super) static COLUMNS: [(&str, Values); 105] = [
    ("WatchID", Int64(|_, own| own.row as i64)),
    ("JavaEnable", Int16(|_, own| (!own.one_user_in(4)).into())),
    ("Title", Text(60, |hit, _, text| push_title(hit.model, hit.page, text))),
    ("GoodEvent", Int16(|_, _| 1)),
    ("EventTime", Time(|hit, _| hit.time_s())),
    ("EventDate", Date(|hit, _| (hit.time_s() / 86_400) as i32)),
    ("CounterID", Int32(|hit, _| hit.counter())),
    ("ClientIP", Int32(|hit, _| hit.ip())),
    ("RegionID", Int32(|hit, _| hit.region())),
    ("UserID", Int64(|hit, _| hit.user_id())),
    ("CounterClass", Int16(|hit, _| (hit.page.site % 3 == 0).into())),
    ("OS", Int16(|hit, own| if phone(hit) > 0 { 60 } else { own.of_user(48) as i16 })),
    ("UserAgent", Int16(|_, own| own.of_user(64) as i16)),
    ("URL", Text(45, |hit, _, text| push_address(hit.model, hit.url(), text))),
    ("Referer", Text(45, |hit, _, text| push_address(hit.model, hit.referer(), text))),
    ("IsRefresh", Int16(|_, own| own.one_in(8).into())),
    ("RefererCategoryID", Int16(|_, own| own.skewed(16) as i16 * 1_000)),
    ("RefererRegionID", Int32(|_, own| own.skewed(300))),
    ("URLCategoryID", Int16(|hit, _| (hit.page.site % 24) as i16 * 500)),
    ("URLRegionID", Int32(|hit, _| (hit.page.site % 90) as i32)),
    ("ResolutionWidth", Int16(|hit, _| screen(hit).0)),
    ("ResolutionHeight", Int16(|hit, _| screen(hit).1)),
    ("ResolutionDepth", Int16(|_, own| if own.one_user_in(16) { 32 } else { 24 })),
    ("FlashMajor", Int16(|_, own| [11, 10, 0, 9][own.of_user(4) as usize])),
    ("FlashMinor", Int16(|_, own| own.of_user(9) as i16)),
    ("FlashMinor2", Word(&FLASH_MINOR, |_, own| own.of_user(8) as usize)),
    ("NetMajor", Int16(|_, own| own.of_user(5) as i16)),
    ("NetMinor", Int16(|_, own| own.of_user(6) as i16)),
    ("UserAgentMajor", Int16(|_, own| own.of_user(40) as i16)),
    ("UserAgentMinor", Word(&AGENT_MINOR, |_, own| own.of_user(12) as usize)),
    ("CookieEnable", Int16(|_, own| (!own.one_user_in(200)).into())),
    ("JavascriptEnable", Int16(|_, own| (!own.one_user_in(100)).into())),
    ("IsMobile", Int16(|hit, _| (phone(hit) > 0).into())),
    ("MobilePhone", Int16(|hit, _| PHONES[phone(hit)].0)),
    ("MobilePhoneModel", Word(&MODELS, |hit, _| phone(hit))),
    ("Params", Text(2, push_params)),
    ("IPNetworkID", Int32(|hit, own| hit.region() * 700 + own.of_user(700))),
    ("TraficSourceID", Int16(|hit, _| traffic_source(hit.source))),
    ("SearchEngineID", Int16(|hit, _| hit.search_engine())),
    ("SearchPhrase", Text(6, push_search_phrase)),
    ("AdvEngineID", Int16(advertiser)),
    ("IsArtifical", Int16(|_, own| own.one_in(64).into())),
    ("WindowClientWidth", Int16(|hit, own| window(screen(hit).0, own, [0, 16, 17, 21]))),
    ("WindowClientHeight", Int16(|hit, own| window(screen(hit).1, own, [90, 120, 134, 189]))),
    ("ClientTimeZone", Int16(|hit, _| zone(hit))),
    ("ClientEventTime", Time(|hit, own| hit.time_s() + i64::from(own.skewed(20_000)) - 3_600)),
    ("SilverlightVersion1", Int16(|_, own| if own.one_user_in(3) { 5 } else { 0 })),
    ("SilverlightVersion2", Int16(|_, own| own.one_user_in(3).into())),
    ("SilverlightVersion3", Int32(|_, own| if own.one_user_in(3) { 20_125 } else { 0 })),
    ("SilverlightVersion4", Int16(|_, _| 0)),
    ("PageCharset", Word(&CHARSETS, |hit, _| hit.page.site as usize % 7 % CHARSETS.len())),
    ("CodeVersion", Int32(|hit, _| [291, 1_601, 1][hit.page.site as usize % 3])),
    ("IsLink", Int16(|_, own| own.one_in(8).into())),
    ("IsDownload", Int16(|_, own| own.one_in(64).into())),
    ("IsNotBounce", Int16(|_, own| own.one_in(2).into())),
    ("FUniqID", Int64(|hit, own| if own.one_user_in(3) { 0 } else { hit.user_id() ^ 0x5555 })),
    ("OriginalURL", Text(8, push_original_url)),
    ("HID", Int32(|_, own| own.below(1 << 30))),
    ("IsOldCounter", Int16(|_, _| 0)),
    ("IsEvent", Int16(|_, own| own.one_in(32).into())),
    ("IsParameter", Int16(|_, own| own.one_in(128).into())),
    ("DontCountHits", Int16(|_, own| own.one_in(10).into())),
    ("WithHash", Int16(|_, own| own.one_in(20).into())),
    ("HitColor", Word(&COLORS, |_, own| own.skewed(5) as usize)),
    ("LocalEventTime", Time(|hit, _| hit.time_s() + i64::from(zone(hit)) * 60)),
    ("Age", Int16(|_, own| AGES[own.of_user(6) as usize])),
    ("Sex", Int16(|_, own| own.of_user(3) as i16)),
    ("Income", Int16(|_, own| own.of_user(5) as i16)),
    ("Interests", Int16(|_, own| own.of_user(16_384) as i16)),
    ("Robotness", Int16(|_, own| own.of_user(64) as i16 / 32)),
    ("RemoteIP", Int32(|hit, own| if own.one_user_in(4) { 0 } else { hit.ip() })),
    ("WindowName", Int32(|_, own| if own.one_in(2) { -1 } else { own.below(12_000) })),
    ("OpenerName", Int32(|_, own| if own.one_in(8) { own.below(1 << 24) } else { -1 })),
    ("HistoryLength", Int16(|_, own| own.skewed(120) as i16 - 1)),
    ("BrowserLanguage", Word(&LANGUAGES, |_, own| own.of_user(8) as usize)),
    ("BrowserCountry", Word(&COUNTRIES, |_, own| own.of_user(8) as usize)),
    ("SocialNetwork", Word(&NETWORKS, |_, own| seldom(own, 200, &NETWORKS))),
    ("SocialAction", Word(&ACTIONS, |_, own| seldom(own, 200, &ACTIONS))),
    ("HTTPError", Int16(|_, own| if own.one_in(500) { 404 } else { 0 })),
    ("SendTiming", Int32(|_, own| own.skewed(10_000))),
    ("DNSTiming", Int32(|_, own| own.skewed(2_000))),
    ("ConnectTiming", Int32(|_, own| own.skewed(4_000))),
    ("ResponseStartTiming", Int32(|_, own| own.skewed(6_000))),
    ("ResponseEndTiming", Int32(|_, own| own.skewed(8_000))),
    ("FetchTiming", Int32(|_, own| own.skewed(20_000))),
    ("SocialSourceNetworkID", Int16(|hit, own| social(hit.source, own.below(4) as i16 + 1))),
    ("SocialSourcePage", Text(1, push_social_page)),
    ("ParamPrice", Int64(|_, own| if own.one_in(300) { own.skewed(90_000_000).into() } else { 0 })),
    ("ParamOrderID", Text(1, push_order)),
    ("ParamCurrency", Word(&CURRENCIES, |_, own| seldom(own, 300, &CURRENCIES))),
    ("ParamCurrencyID", Int16(|_, own| if own.one_in(300) { 643 } else { 0 })),
    ("OpenstatServiceName", Word(&SERVICES, |_, own| seldom(own, 100, &SERVICES))),
    ("OpenstatCampaignID", Word(&CAMPAIGNS, |_, own| seldom(own, 100, &CAMPAIGNS))),
    ("OpenstatAdID", Word(&CAMPAIGNS, |_, own| seldom(own, 120, &CAMPAIGNS))),
    ("OpenstatSourceID", Word(&SERVICES, |_, own| seldom(own, 120, &SERVICES))),
    ("UTMSource", Word(&UTM_SOURCES, |_, own| seldom(own, 30, &UTM_SOURCES))),
    ("UTMMedium", Word(&UTM_MEDIA, |_, own| seldom(own, 30, &UTM_MEDIA))),
    ("UTMCampaign", Word(&CAMPAIGNS, |_, own| seldom(own, 30, &CAMPAIGNS))),
    ("UTMContent", Word(&CAMPAIGNS, |_, own| seldom(own, 60, &CAMPAIGNS))),
    ("UTMTerm", Word(&TERMS, |_, own| seldom(own, 60, &TERMS))),
    ("FromTag", Word(&TAGS, |_, own| seldom(own, 80, &TAGS))),
    ("HasGCLID", Int16(|_, own| own.one_in(100).into())),
    ("RefererHash", Int64(|hit, _| hit.referer().hash())),
    ("URLHash", Int64(|hit, _| hit.url().hash())),
    ("CLID", Int32(|_, own| if own.one_in(50) { own.below(2_000_000) } else { 0 })),
];

/// Names of sources as numbers.
fn traffic_source(source: Source) -> i16 {
    match source {
        Source::Internal => -1,
        Source::Direct => 0,
        Source::Link => 1,
        Source::Search => 2,
        Source::Advertisement => 3,
        Source::Saved => 4,
        Source::Undefined => 5,
        Source::External => 6,
        Source::Social => 8,
    }
}

/// 0 unless an advertisement led here.
fn advertiser(hit: &Hit<'_>, own: Own) -> i16 {
    match hit.source {
        Source::Advertisement => 2 + own.skewed(60) as i16,
        _ => 0,
    }
}

/// A window's size from the screen's, without borders; a few are unknown.
fn window(screen: i16, own: Own, around: [i16; 4]) -> i16 {
    match own.below(64) {
        0 | 1 => 0,
        other => screen - around[other as usize % 4].min(screen),
    }
}

fn social(source: Source, network: i16) -> i16 {
    if source == Source::Social { network } else { 0 }
}

fn push_search_phrase(hit: &Hit<'_>, _: Own, text: &mut TextBuilder) {
    if let Some(phrase) = hit.phrase() {
        push_phrase(hit.model, phrase, text);
    }
}

fn push_original_url(hit: &Hit<'_>, own: Own, text: &mut TextBuilder) {
    let address = if own.one_in(8) { hit.url() } else { Address::None };
    push_address(hit.model, address, text);
}

fn push_params(_: &Hit<'_>, own: Own, text: &mut TextBuilder) {
    if own.one_in(50) {
        text.push(b"{\"visit\":");
        text.push_number(own.skewed(1_000) as u32, 1);
        text.push(b"}");
    }
}

fn push_social_page(hit: &Hit<'_>, own: Own, text: &mut TextBuilder) {
    if hit.source == Source::Social {
        text.push(b"http://social.example/id");
        text.push_number(own.skewed(100_000) as u32, 1);
    }
}

fn push_order(_: &Hit<'_>, own: Own, text: &mut TextBuilder) {
    if own.one_in(300) {
        text.push_number(own.below(1 << 30) as u32, 10);
    }
}
