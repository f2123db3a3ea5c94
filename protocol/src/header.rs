//! Request and response headers. The request header's version follows from the API and its version, which stand at its
//! start, so that a header can be read before anything is known about the request.

use crate::api::ApiKey;
use crate::error::{DecodeError, DecodeFault};
use crate::primitive::string::Str;
use crate::reader::Reader;
use crate::writer::Writer;

/// The header of a request whose API exists; its version may be one that does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API.
    pub api_key: ApiKey,
    /// Version of the request as the client wrote it, not checked against the API's range.
    pub api_version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// The client's name for itself; user input, also for logs and quotas.
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads a header of version 1 or 2 and leaves the reader at the body. Version 0, without client id, belonged to
    /// an API that Kafka 4 removed.
    ///
    /// # Errors
    /// [`DecodeFault::ApiKey`] for a key that does not exist, and when the bytes are not a header. In both cases Kafka
    /// closes the connection (CN-4).
    pub fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Self::read(r).map_err(|error| error.within("RequestHeader", -1))
    }

    fn read(r: &mut Reader) -> Result<Self, DecodeError> {
        let key = r.i16()?;
        let api_key = ApiKey::from_i16(key).ok_or_else(|| r.fault(DecodeFault::ApiKey(key)))?;
        let api_version = r.i16()?;
        let correlation_id = r.i32()?;
        // Classic also in version 2: the header of ApiVersions must be readable by any broker.
        let client_id = r.nullable_string(false)?;
        if api_key.request_header_version(api_version) >= 2 {
            r.no_tagged_fields()?;
        }
        Ok(Self {
            api_key,
            api_version,
            correlation_id,
            client_id,
        })
    }

    /// Writes the header in the version that belongs to its API and version.
    pub fn encode(&self, w: &mut Writer) {
        w.i16(self.api_key.as_i16());
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        w.nullable_string(false, self.client_id.as_ref());
        if self.api_key.request_header_version(self.api_version) >= 2 {
            w.tagged_count(0);
        }
    }
}

/// The header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The correlation id of the request.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Writes the header as it stands before the answer to `api_key` in `api_version`.
    pub fn encode(self, w: &mut Writer, api_key: ApiKey, api_version: i16) {
        w.i32(self.correlation_id);
        if api_key.response_header_version(api_version) >= 1 {
            w.tagged_count(0);
        }
    }

    /// Reads the header of an answer to `api_key` in `api_version`.
    ///
    /// # Errors
    /// When the bytes are not a header.
    pub fn decode(r: &mut Reader, api_key: ApiKey, api_version: i16) -> Result<Self, DecodeError> {
        let version = api_key.response_header_version(api_version);
        let read = |r: &mut Reader| {
            let correlation_id = r.i32()?;
            if version >= 1 {
                r.no_tagged_fields()?;
            }
            Ok(Self { correlation_id })
        };
        read(r).map_err(|error: DecodeError| error.within("ResponseHeader", version))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn headers_come_back_for_every_api_and_version() {
        for api in crate::api::APIS {
            for version in api.key.versions() {
                let header = RequestHeader {
                    api_key: api.key,
                    api_version: version,
                    correlation_id: -7,
                    client_id: Some(Str::from("me")),
                };
                let mut w = Writer::new();
                header.encode(&mut w);
                let bytes = w.into_bytes().unwrap();
                assert_eq!(bytes.len(), if api.key.is_flexible(version) { 13 } else { 12 });
                let mut r = Reader::new(bytes);
                assert_eq!(RequestHeader::decode(&mut r).unwrap(), header);
                r.expect_end().unwrap();

                let mut w = Writer::new();
                ResponseHeader { correlation_id: 9 }.encode(&mut w, api.key, version);
                let mut r = Reader::new(w.into_bytes().unwrap());
                let header = ResponseHeader::decode(&mut r, api.key, version).unwrap();
                assert_eq!(header.correlation_id, 9);
                r.expect_end().unwrap();
            }
        }
    }

    #[test]
    fn an_unknown_key_is_told_apart_from_damage() {
        let mut r = Reader::new(Bytes::from_static(&[0, 4, 0, 0, 0, 0, 0, 1, 0xff, 0xff]));
        assert_eq!(
            RequestHeader::decode(&mut r).unwrap_err().fault,
            DecodeFault::ApiKey(4)
        );
        let mut r = Reader::new(Bytes::from_static(&[0, 3, 0, 0, 0]));
        assert!(matches!(
            RequestHeader::decode(&mut r).unwrap_err().fault,
            DecodeFault::Truncated { .. }
        ));
    }

    #[test]
    fn tagged_fields_of_a_header_are_skipped() {
        let bytes = Bytes::from_static(&[0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 1, 5, 2, 1, 1, 42]);
        let mut r = Reader::new(bytes);
        let header = RequestHeader::decode(&mut r).unwrap();
        assert_eq!((header.api_key, header.client_id), (ApiKey::ApiVersions, None));
        assert_eq!(r.i8().unwrap(), 42);
    }
}
