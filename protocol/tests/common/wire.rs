//! Wire bytes of any message in any version, made from the schema alone: an encoder that shares no code with the crate,
//! for comparing others with. Its output is canonical: tagged fields are there exactly when they are not the default.

use super::schema::{Base, Field, Message, StructDef};

/// A small generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// How a message is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Arrays are empty, tagged fields absent, nothing is null.
    Empty,
    /// Whatever can be null is.
    Null,
    /// Arrays have one element, all tagged fields are there.
    One,
    /// Arrays have three elements, all tagged fields are there.
    Three,
    /// Any of the above, field by field, and now and then a byte field large enough to be spliced.
    Random,
}

pub const FILLS: [Fill; 5] = [Fill::Empty, Fill::Null, Fill::One, Fill::Three, Fill::Random];

/// The bytes of `message` in `version`, filled with values other than the defaults.
pub fn bytes_of(message: &Message, version: i16, fill: Fill, rng: &mut Rng) -> Vec<u8> {
    let flexible = message.flexible.is_some_and(|first| version >= first);
    let mut out = Vec::new();
    Encoder {
        message,
        version,
        flexible,
        fill,
        rng,
        out: &mut out,
    }
    .structure(&message.body);
    out
}

struct Encoder<'a> {
    message: &'a Message,
    version: i16,
    flexible: bool,
    fill: Fill,
    rng: &'a mut Rng,
    out: &'a mut Vec<u8>,
}

impl Encoder<'_> {
    fn structure(&mut self, def: &StructDef) {
        let present = |field: &&Field| field.versions.contains(self.version);
        let (mut tagged, plain): (Vec<&Field>, Vec<&Field>) = def
            .fields
            .iter()
            .filter(present)
            .partition(|field| field.tag.is_some());
        for field in plain {
            self.field(field);
        }
        if !self.flexible {
            return;
        }
        tagged.sort_by_key(|field| field.tag);
        tagged.retain(|field| self.is_tagged_field_set(field));
        self.uvarint(tagged.len());
        for field in tagged {
            self.uvarint(field.tag.unwrap() as usize);
            let mut content = Vec::new();
            Encoder {
                out: &mut content,
                rng: &mut *self.rng,
                ..*self
            }
            .tagged(field);
            self.uvarint(content.len());
            self.out.append(&mut content);
        }
    }

    fn is_tagged_field_set(&mut self, field: &Field) -> bool {
        // A null beside a default that is not null has to be written.
        let null_matters = field.nullable.is_some() && field.default.as_deref() != Some("null");
        match self.fill {
            Fill::Empty => false,
            Fill::Null => null_matters,
            Fill::One | Fill::Three => true,
            Fill::Random => self.rng.below(2) == 0,
        }
    }

    /// The content of a tagged field, which is never the default.
    fn tagged(&mut self, field: &Field) {
        let is_struct = matches!(field.base, Base::Struct(_)) && !field.array;
        if self.fill == Fill::Null && field.nullable.is_some() {
            // Only reached when null is not the default; among structs it is written as a varint.
            return if is_struct {
                self.uvarint(0)
            } else {
                self.null(field)
            };
        }
        if is_struct && field.nullable.is_some() {
            self.uvarint(1);
        }
        // Inside of it the arrays must not be empty, else a struct could be all defaults.
        let fill = if self.fill == Fill::Three {
            Fill::Three
        } else {
            Fill::One
        };
        let mut inner = Encoder {
            out: &mut *self.out,
            rng: &mut *self.rng,
            fill,
            ..*self
        };
        if field.array {
            inner.array(field)
        } else {
            inner.value(field)
        }
    }

    fn field(&mut self, field: &Field) {
        let may_be_null = field
            .nullable
            .is_some_and(|versions| versions.contains(self.version));
        let null = match self.fill {
            Fill::Null => true,
            Fill::Random => self.rng.below(3) == 0,
            _ => false,
        };
        if may_be_null && null {
            return self.null(field);
        }
        if field.array {
            return self.array(field);
        }
        if matches!(field.base, Base::Struct(_)) && field.nullable.is_some() {
            self.out.push(1);
        }
        self.value(field);
    }

    fn compact(&self, field: &Field) -> bool {
        self.flexible && !field.classic
    }

    fn null(&mut self, field: &Field) {
        match (&field.base, field.array) {
            (Base::Struct(_), false) => self.out.push(0xff),
            _ if self.compact(field) => self.out.push(0),
            (Base::String, false) => self.out.extend([0xff; 2]),
            _ => self.out.extend([0xff; 4]),
        }
    }

    fn array(&mut self, field: &Field) {
        let count = match self.fill {
            Fill::Empty | Fill::Null => 0,
            Fill::One => 1,
            Fill::Three => 3,
            Fill::Random => self.rng.below(4) as usize,
        };
        self.length(field, count, 4);
        for _ in 0..count {
            self.value(field);
        }
    }

    /// A length in front of `classic_bytes` bytes in the classic form.
    fn length(&mut self, field: &Field, length: usize, classic_bytes: usize) {
        if self.compact(field) {
            self.uvarint(length + 1);
        } else {
            let bytes = (length as u32).to_be_bytes();
            self.out.extend(&bytes[4 - classic_bytes..]);
        }
    }

    fn uvarint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn value(&mut self, field: &Field) {
        let width = match &field.base {
            Base::Struct(name) => {
                let message = self.message;
                return self.structure(message.structs.iter().find(|def| def.name == *name).unwrap());
            }
            Base::String => {
                let text = self.text();
                self.length(field, text.len(), 2);
                return self.out.extend(text.as_bytes());
            }
            Base::Bytes | Base::Records => {
                let large = self.fill == Fill::Random && self.rng.below(8) == 0;
                let len = if large {
                    5_000 + self.rng.below(5_000)
                } else {
                    1 + self.rng.below(40)
                } as usize;
                self.length(field, len, 4);
                return self.out.extend((0..len).map(|i| i as u8 ^ 0x5a));
            }
            Base::Bool => return self.out.push(u8::from(field.default.as_deref() != Some("true"))),
            Base::F64 => {
                return self
                    .out
                    .extend((self.rng.below(1 << 40) as f64 / 7.0 + 0.5).to_be_bytes());
            }
            Base::I8 => 1,
            Base::I16 | Base::U16 | Base::Error => 2,
            Base::I32 | Base::U32 => 4,
            Base::I64 => 8,
            Base::Uuid => 16,
        };
        // Odd in every byte, so neither 0 nor any of the defaults, which are -1, -2, the largest and small even numbers,
        // 1 and 3 aside: those are avoided by the high bits.
        let mut bytes: Vec<u8> = (0..width)
            .map(|_| (self.rng.next() as u8 & 0x3f) | 0x21)
            .collect();
        if width == 1 && bytes[0] & 0x1e == 0 {
            bytes[0] |= 0x10;
        }
        self.out.extend(bytes);
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 8] = ['a', 'Z', '-', '.', '7', 'ü', '漢', '🚰'];
        let len = 1 + self.rng.below(12);
        (0..len).map(|_| LETTERS[self.rng.below(8) as usize]).collect()
    }
}
