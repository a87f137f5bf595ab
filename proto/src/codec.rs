//! Codec of all generated clients and servers: like the one of tonic, but with smaller initial buffers.

use std::marker::PhantomData;

use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstDecoder;

/// Initial size of the buffers of a call; they grow for longer messages. tonic's default of 8 KiB would dominate the memory of an
/// open stream, of which there may be a million.
const BUFFER_BYTES: usize = 128;

/// Number of buffered bytes after which a stream is flushed; the default of tonic.
const YIELD_BYTES: usize = 32 * 1024;

/// Protobuf codec that encodes `T` and decodes `U`.
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

/// Encoder that reserves the exact size of the message, so that the buffer does not grow field by field.
#[derive(Clone, Copy, Debug)]
pub struct LeanEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for LeanEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        // `encode` would measure the message a second time before it calls `encode_raw`.
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
