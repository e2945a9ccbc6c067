//! The page: what it may load, and that nothing of what it shows can leave its cell.

use postrider_server::http::{POLICY, STYLE, View, notice, page};

#[test]
fn hostile_text_is_text_wherever_it_stands() {
    let [ordinary, hostile] = View::samples();
    let (ordinary, hostile) = (page(&ordinary).into_string(), page(&hostile).into_string());
    assert!(ordinary.contains("orders"));
    // The same tags, as many: the text has brought none of its own.
    assert_eq!(hostile.matches('<').count(), ordinary.matches('<').count());
    assert!(hostile.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for gone in ["<script", "<img", "onload=\"a", "\u{202e}", "\u{2066}", "\u{7}", "\u{0}"] {
        assert!(!hostile.contains(gone), "{gone:?}");
    }
    // Each text of the sample stands on the page, in its harmless form.
    assert_eq!(hostile.matches("&lt;/script&gt;&lt;script&gt;").count(), ordinary.matches("orders").count());
    let told = notice(postrider_server::http::HOSTILE).into_string();
    assert!(!told.contains("<script") && !told.contains("<img"), "{told}");
}

#[test]
fn the_page_needs_nothing_that_its_policy_forbids() {
    let [view, _] = View::samples();
    let page = page(&view).into_string();
    for forbidden in ["<script", "<style", " style=", " onclick", "http://", "https://", "<form", "<iframe"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(!POLICY.contains("unsafe") && POLICY.starts_with("default-src 'none'"));
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
}

#[test]
fn the_page_has_colours_for_light_and_for_dark() {
    let [view, _] = View::samples();
    assert!(page(&view).into_string().contains("<meta name=\"color-scheme\" content=\"light dark\">"));
    assert!(STYLE.contains("prefers-color-scheme: dark"));
}

#[test]
fn a_long_text_is_cut_and_says_so() {
    let [mut view, _] = View::samples();
    view.database = "ä".repeat(10_000);
    let page = page(&view).into_string();
    assert!(page.len() < 10_000 && page.contains("ä…"), "{} bytes", page.len());
}

#[test]
fn a_view_of_nothing_says_so_in_words() {
    let page = page(&View::default()).into_string();
    assert_eq!(page.matches("None yet.").count(), 4);
}
