//! How messages are put on the wire: as tonic does it, with buffers that fit our messages.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstDecoder;

/// What a call's buffers begin with; they grow for longer messages. tonic's own 8 KiB are what an open stream would mostly
/// consist of, and there may be a million of them.
const BUFFER_BYTES: usize = 128;

/// What a stream may gather before it goes on the wire, as in tonic.
const YIELD_BYTES: usize = 32 * 1024;

/// Encodes `T`, decodes `U`.
#[derive(Clone, Copy, Debug)]
pub struct LeanCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for LeanCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for LeanCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = LeanEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        LeanEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(buffers())
    }
}

/// Encodes `T` into a buffer that has room for all of it from the start, instead of growing as the fields come.
#[derive(Clone, Copy, Debug)]
pub struct LeanEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for LeanEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        // What `encode` does after it has measured the message once more.
        item.encode_raw(buffer);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}
