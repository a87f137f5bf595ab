//! Ticket codes as QR pictures.

use qrcode::{Color, EcLevel, QrCode};

/// Width of the light border in modules. Scanners need it to find the square.
const QUIET_MODULES: usize = 4;
/// Equal to the bits of a byte, so that a module of a 1-bit image is one byte of a row.
const PIXELS_PER_MODULE: usize = 8;
const DARK: u8 = 0x00;
const LIGHT: u8 = 0xff;

/// Returns the QR code of `code` as a PNG that is readable with up to 15 % of it damaged, or `None` if the code is too long.
pub(super) fn png(code: &str) -> Option<Vec<u8>> {
    let bare = QrCode::with_error_correction_level(code, EcLevel::M).ok()?;
    let side = bare.width().checked_add(2 * QUIET_MODULES)?;
    let quiet_row = vec![LIGHT; side.checked_mul(PIXELS_PER_MODULE)?];
    let mut image = quiet_row.repeat(QUIET_MODULES);
    for row in bare.to_colors().chunks(bare.width()) {
        let mut line = vec![LIGHT; QUIET_MODULES];
        line.extend(row.iter().map(|module| if *module == Color::Dark { DARK } else { LIGHT }));
        line.extend([LIGHT; QUIET_MODULES]);
        image.extend(line.repeat(PIXELS_PER_MODULE));
    }
    image.extend(quiet_row.repeat(QUIET_MODULES));
    let pixels = u32::try_from(side.checked_mul(PIXELS_PER_MODULE)?).ok()?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, pixels, pixels);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(&image).ok()?;
    writer.finish().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanner_reads_the_code_from_the_picture() {
        let code = "aB-_".repeat(37);
        let mut reader = png::Decoder::new(std::io::Cursor::new(png(&code).unwrap())).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let side = usize::try_from(info.width).unwrap();
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(side, side, |x, y| {
            if pixels[y * info.line_size + x / 8] & (0x80 >> (x % 8)) == 0 { 0 } else { 255 }
        });
        assert_eq!(image.detect_grids().first().unwrap().decode().unwrap().1, code);
    }

    #[test]
    fn code_that_is_too_long_has_no_picture() {
        assert_eq!(png(&"a".repeat(5_000)), None);
    }
}
