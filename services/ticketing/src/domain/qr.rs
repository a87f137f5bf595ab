//! QR codes: squares of dark and light modules, drawn as SVG or PNG.

use qrcode::{Color, EcLevel, QrCode};

use super::{code::Code, document::DocumentError};

/// Width of the light border in modules. Scanners do not find a QR code without it.
pub(super) const QUIET_MODULES: usize = 4;
/// Pixels per module of the PNG. At one bit per pixel, a module is one byte of a row.
const PIXELS_PER_MODULE: usize = 8;
const DARK: u8 = 0x00;
const LIGHT: u8 = 0xff;

/// Modules of a QR code, including the light border.
pub(super) struct Qr {
    /// Modules on a side.
    width: usize,
    /// Modules row by row.
    is_dark: Vec<bool>,
}

/// Adjacent dark modules of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) length: usize,
}

impl Qr {
    /// Encodes a ticket's code at medium error correction, which tolerates 15 % damage.
    pub(super) fn of(code: &Code) -> Result<Self, DocumentError> {
        let bare = QrCode::with_error_correction_level(code.expose(), EcLevel::M)
            .map_err(|error| DocumentError::Qr { problem: error.to_string() })?;
        let width = bare.width().saturating_add(2 * QUIET_MODULES);
        let mut is_dark = vec![false; QUIET_MODULES * width];
        for row in bare.to_colors().chunks(bare.width()) {
            is_dark.extend([false; QUIET_MODULES]);
            is_dark.extend(row.iter().map(|module| *module == Color::Dark));
            is_dark.extend([false; QUIET_MODULES]);
        }
        is_dark.resize(width.saturating_mul(width), false);
        Ok(Self { width, is_dark })
    }

    /// Returns the number of modules on a side, border included.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    fn rows(&self) -> impl Iterator<Item = &[bool]> {
        self.is_dark.chunks(self.width)
    }

    /// Returns the dark runs of all rows, from top to bottom.
    pub(super) fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for (y, row) in self.rows().enumerate() {
            let mut x: usize = 0;
            for stretch in row.chunk_by(|left, right| left == right) {
                if stretch.first() == Some(&true) {
                    runs.push(Run { x, y, length: stretch.len() });
                }
                x = x.saturating_add(stretch.len());
            }
        }
        runs
    }

    pub(super) fn svg(&self) -> Vec<u8> {
        let path: String = self
            .runs()
            .iter()
            .map(|run| format!("M{} {}h{}v1h-{}z", run.x, run.y, run.length, run.length))
            .collect();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {0}\" shape-rendering=\"crispEdges\">\
             <path fill=\"#fff\" d=\"M0 0h{0}v{0}H0z\"/><path d=\"{path}\"/></svg>",
            self.width
        )
        .into_bytes()
    }

    pub(super) fn png(&self) -> Result<Vec<u8>, DocumentError> {
        let mut image = Vec::with_capacity(self.is_dark.len().saturating_mul(PIXELS_PER_MODULE));
        for row in self.rows() {
            let line: Vec<u8> = row.iter().map(|is_dark| if *is_dark { DARK } else { LIGHT }).collect();
            for _ in 0..PIXELS_PER_MODULE {
                image.extend_from_slice(&line);
            }
        }
        let side = u32::try_from(self.width.saturating_mul(PIXELS_PER_MODULE)).unwrap_or(u32::MAX);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, side, side);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::One);
        let mut writer = encoder.write_header().map_err(DocumentError::Png)?;
        writer.write_image_data(&image).map_err(DocumentError::Png)?;
        writer.finish().map_err(DocumentError::Png)?;
        Ok(file)
    }
}
