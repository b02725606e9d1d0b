//! The places of texts in a drawing, for tests that none overlaps another.

use super::svg::width;

/// A text and the rectangle that it takes.
#[derive(Debug)]
pub(crate) struct TextBox {
    pub(crate) text: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Heights of a text above and below its baseline, in units of the font size.
const ABOVE: f64 = 0.76;
const BELOW: f64 = 0.22;
/// The font size of the drawings.
const SIZE: f64 = 11.5;

/// Returns the pairs of texts that overlap, and the texts that are partly outside the drawing.
pub(crate) fn overlaps(svg: &str) -> Vec<String> {
    let boxes = text_boxes(svg);
    let size = attribute(svg, "viewBox").unwrap();
    let size: Vec<f64> = size.split(' ').map(|part| part.parse().unwrap()).collect();
    let mut found = Vec::new();
    for (at, one) in boxes.iter().enumerate() {
        let outside = one.left < -1.0
            || one.top < -1.0
            || one.right > size[2] + 1.0
            || one.bottom > size[3] + 1.0;
        if outside {
            found.push(format!("`{}` is outside: {one:?} of {size:?}", one.text));
        }
        let others = boxes[at + 1..].iter().filter(|other| one.overlaps(other));
        found.extend(
            others.map(|other| format!("`{}` and `{}`: {one:?} {other:?}", one.text, other.text)),
        );
    }
    found
}

impl TextBox {
    fn overlaps(&self, other: &Self) -> bool {
        let across = self.left < other.right && other.left < self.right;
        across && self.top < other.bottom && other.top < self.bottom
    }
}

/// Returns the texts of a drawing with their places, which groups may move.
pub(crate) fn text_boxes(svg: &str) -> Vec<TextBox> {
    let mut moves = vec![[0.0, 0.0]];
    let mut boxes = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, content) = part.split_once('>').unwrap();
        let current: [f64; 2] = moves[moves.len() - 1];
        if tag == "/g" {
            moves.pop();
        } else if tag == "g" || tag.starts_with("g ") {
            let [x, y] = moved(tag).unwrap_or([0.0, 0.0]);
            moves.push([current[0] + x, current[1] + y]);
        } else if tag.starts_with("text") && !content.is_empty() {
            boxes.push(text_box(tag, content, current));
        }
    }
    boxes
}

fn text_box(tag: &str, content: &str, [dx, dy]: [f64; 2]) -> TextBox {
    let size: f64 = attribute(tag, "font-size").map_or(SIZE, |size| size.parse().unwrap());
    let text = content
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let bold = if tag.contains("font-weight") {
        1.12
    } else {
        1.0
    };
    let wide = width(&text) * size / SIZE * bold;
    let before = match attribute(tag, "text-anchor").as_deref() {
        Some("middle") => wide / 2.0,
        Some("end") => wide,
        _ => 0.0,
    };
    let (above, below) = (ABOVE * size, BELOW * size);
    if let Some([x, y]) = moved(tag) {
        // The only texts that are moved are turned upwards.
        assert!(tag.contains("rotate(-90)"), "{tag}");
        let (x, y) = (x + dx, y + dy);
        return TextBox {
            text,
            left: x - above,
            right: x + below,
            top: y - (wide - before),
            bottom: y + before,
        };
    }
    let at = |name: &str| attribute(tag, name).unwrap().parse::<f64>().unwrap();
    let (x, y) = (at("x") + dx - before, at("y") + dy);
    TextBox {
        text,
        left: x,
        right: x + wide,
        top: y - above,
        bottom: y + below,
    }
}

fn moved(tag: &str) -> Option<[f64; 2]> {
    let (_, rest) = tag.split_once("translate(")?;
    let (pair, _) = rest.split_once(')')?;
    let (x, y) = pair.split_once(' ')?;
    Some([x.parse().ok()?, y.parse().ok()?])
}

/// Returns the value of the first attribute of this name.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}
