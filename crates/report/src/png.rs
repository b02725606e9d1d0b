//! Drawings as PNG, for slides and documents that take no SVG.

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Pixels for each unit of a drawing, which is as wide as a phone: enough for a slide.
const SCALE: f32 = 3.0;
/// Families without serifs, of which the first that is installed is used. The widths of texts in the drawings suffice
/// for each of them.
const FAMILIES: [&str; 5] = [
    "DejaVu Sans",
    "Liberation Sans",
    "Noto Sans",
    "Arial",
    "Helvetica",
];

/// An error of a drawing that is made into a PNG.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The texts would be missing.
    #[error(
        "no font is installed: a PNG needs one for its texts, for example DejaVu Sans (package fonts-dejavu-core)"
    )]
    NoFont,
    /// The drawing cannot be read.
    #[error("{name}: {cause}")]
    Drawing {
        /// Name of the drawing.
        name: String,
        /// The cause in words.
        cause: String,
    },
}

/// Makes drawings into PNG files with the fonts of this machine.
pub(crate) struct PngWriter(Options<'static>);

impl PngWriter {
    /// Reads the fonts that are installed.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn with_fonts_of_machine() -> Result<Self, PngError> {
        let mut options = Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        let installed: Vec<(String, bool)> = fonts
            .faces()
            .filter_map(|face| Some((face.families.first()?.0.clone(), face.monospaced)))
            .collect();
        let preferred = FAMILIES.iter().find_map(|family| {
            let mut all = installed.iter();
            all.find(|(known, _)| known == family)
        });
        let proportional = || installed.iter().find(|(_, monospaced)| !monospaced);
        let family = preferred.or_else(proportional).or(installed.first());
        let (family, _) = family.ok_or(PngError::NoFont)?;
        fonts.set_sans_serif_family(family);
        Ok(Self(options))
    }

    /// Returns a drawing of this name on a white background as PNG.
    ///
    /// # Errors
    /// A drawing that cannot be read, or is too large.
    pub(crate) fn png(&self, name: &str, svg: &str) -> Result<Vec<u8>, PngError> {
        let failed = |cause: String| PngError::Drawing {
            name: name.to_owned(),
            cause,
        };
        // The targets of a pointer are of no use here.
        let svg = svg.replace("fill=\"transparent\"", "fill=\"none\"");
        let tree = Tree::from_str(&svg, &self.0).map_err(|error| failed(error.to_string()))?;
        let size = tree.size().to_int_size().scale_by(SCALE);
        let pixmap = size.and_then(|size| Pixmap::new(size.width(), size.height()));
        let mut pixmap = pixmap.ok_or_else(|| failed("it is too large".to_owned()))?;
        pixmap.fill(Color::WHITE);
        let scale = Transform::from_scale(SCALE, SCALE);
        resvg::render(&tree, scale, &mut pixmap.as_mut());
        pixmap
            .encode_png()
            .map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn a_png_is_as_large_as_the_drawing_times_the_scale_and_has_ink() {
        let Ok(writer) = PngWriter::with_fonts_of_machine() else {
            // The message is the user's.
            assert!(PngError::NoFont.to_string().contains("fonts-dejavu-core"));
            return;
        };
        let drawings = crate::Drawings::of(&record()).svg();
        assert!(!drawings.is_empty());
        for (name, svg) in drawings {
            let png = writer.png(&name, &svg).unwrap();
            let pixmap = Pixmap::decode_png(&png).unwrap();
            assert_eq!(pixmap.width(), 1320, "{name}");
            let pixels = pixmap.pixels();
            let dark = pixels.iter().filter(|pixel| pixel.red() < 100).count();
            assert!(dark > 500, "{name}: {dark} dark pixels");
            assert!(dark < pixels.len() / 2, "{name}: {dark} dark pixels");
        }
    }

    #[test]
    fn what_is_no_drawing_is_an_error_with_its_name() {
        if let Ok(writer) = PngWriter::with_fonts_of_machine() {
            let error = writer.png("x.svg", "<svg").unwrap_err();
            assert!(error.to_string().starts_with("x.svg: "), "{error}");
        }
    }
}
