//! Texts of pages and searches, composed of short lists.

use super::hit::{Address, Model, Page};
use crate::{columns::TextBuilder, random::Digits};

/// A site's name is one of these and one of [`NAMES_END`]: 1,024 sites.
const NAMES: [&str; 32] = [
    "auto", "kino", "foto", "radio", "tele", "sport", "moda", "dom", "sad", "knigi", "muzyka",
    "igry", "rabota", "bilet", "gorod", "reka", "more", "gora", "zima", "leto", "shkola", "nauka",
    "zdorovie", "kuhnya", "turist", "bank", "pogoda", "novosti", "detki", "tehno", "market",
    "mebel",
];
const NAMES_END: [&str; 32] = [
    "mir", "grad", "klub", "info", "online", "plus", "centr", "life", "portal", "shop", "forum",
    "guide", "land", "line", "media", "news", "park", "point", "port", "room", "space", "star",
    "style", "time", "today", "town", "view", "ville", "web", "world", "zone", "house",
];
const DOMAINS: [&str; 4] = [".example", ".example.com", ".example.net", ".example.org"];
/// The number of the site that belongs to the search engine in the queries.
const GOOGLE_SITE: u32 = 5;
const SECTIONS: [&str; 16] = [
    "news", "catalog", "forum", "article", "photo", "video", "search", "user", "shop", "cart",
    "games", "help", "blog", "map", "price", "archive",
];
/// One of this many pages is reached through that search engine.
const GOOGLE_PAGES: u32 = 64;

const WORDS: [&str; 64] = [
    "купить", "скачать", "смотреть", "онлайн", "бесплатно", "фильм", "погода", "москва", "карта",
    "расписание", "поездов", "автобус", "рецепт", "пирога", "игры", "для", "девочек", "мальчиков",
    "песни", "текст", "перевод", "новости", "сегодня", "цена", "отзывы", "ремонт", "квартиры",
    "своими", "руками", "работа", "вакансии", "дача", "сад", "рыба", "лес", "море", "отдых",
    "летом", "билеты", "концерт", "театр", "школа", "книга", "читать", "история", "города", "фото",
    "котята", "собака", "машина", "шины", "масло", "телефон", "android", "windows", "iphone",
    "video", "mp3", "2013", "hd", "samsung", "java", "photo", "radio",
];

/// The engines by number, from 2.
const ENGINES: [&str; 3] = ["yandex.example", "www.google.example", "go.mail.example"];

/// Appends a URL.
pub(super) fn push_address(model: &Model, address: Address, text: &mut TextBuilder) {
    match address {
        Address::None => {}
        Address::Page(page) => push_url(page, text),
        Address::Search { engine, phrase } => {
            let engine = usize::from(engine.unsigned_abs()).saturating_sub(2) % ENGINES.len();
            text.push(b"http://");
            text.push(ENGINES[engine].as_bytes());
            text.push(b"/search?id=");
            text.push_number(phrase, 1);
            text.push(b"&text=");
            push_phrase(model, phrase, text);
        }
    }
}

fn push_url(Page { site, number }: Page, text: &mut TextBuilder) {
    text.push(if site % 8 == 3 { b"https://" } else { b"http://" });
    text.push(if site % 3 == 1 { b"www." } else { b"" });
    push_site(site, text);
    if site == GOOGLE_SITE {
        text.push(b".google");
    }
    text.push(DOMAINS[site as usize % DOMAINS.len()].as_bytes());
    text.push(b"/");
    if number == 0 {
        return;
    }
    text.push(SECTIONS[number as usize % SECTIONS.len()].as_bytes());
    if number % 3 == 0 {
        text.push(b"?id=");
        text.push_number(number, 1);
    } else {
        text.push(b"/");
        text.push_number(number, 1);
        text.push(b".html");
    }
    if is_from_google(number) {
        text.push(if number % 3 == 0 { b"&" } else { b"?" });
        text.push(b"utm_source=google");
    }
}

fn is_from_google(number: u32) -> bool {
    number % GOOGLE_PAGES == 9
}

fn push_site(site: u32, text: &mut TextBuilder) {
    let site = site as usize;
    text.push(NAMES[site % NAMES.len()].as_bytes());
    text.push(NAMES_END[site / NAMES.len() % NAMES_END.len()].as_bytes());
}

/// Appends a page's title; one page of sixteen has none.
pub(super) fn push_title(model: &Model, page: Page, text: &mut TextBuilder) {
    let mut digits = model.title(page);
    if page.number > 0 && digits.below(16) == 0 {
        return;
    }
    push_words(2 + digits.below(4), &mut digits, text);
    text.push(b" - ");
    push_site(page.site, text);
    if page.site == GOOGLE_SITE || is_from_google(page.number) {
        text.push(b" | Google");
    }
}

/// Appends a phrase: one to four words, and some have a number.
pub(super) fn push_phrase(model: &Model, phrase: u32, text: &mut TextBuilder) {
    let mut digits = model.phrase(phrase);
    push_words(1 + digits.below(4), &mut digits, text);
    if digits.below(3) == 0 {
        text.push(b" ");
        text.push_number(digits.below(2_000), 1);
    }
}

fn push_words(count: u32, digits: &mut Digits, text: &mut TextBuilder) {
    for word in 0..count {
        text.push(if word > 0 { b" " } else { b"" });
        text.push(WORDS[digits.below(WORDS.len() as u32) as usize].as_bytes());
    }
}
