//! RSA signatures with keys of 1024 bits, which TLS libraries no longer make, for peers that still have such keys. This
//! code is slow and open to timing attacks; the keys are public in the repository.

use std::sync::Arc;

use rustls::{
    CipherSuite, Error, SignatureAlgorithm, SignatureScheme,
    crypto::hash::Hash,
    sign::{Signer, SigningKey},
};
use rustls_pki_types::PrivateKeyDer;
use x509_parser::der_parser::ber::parse_ber_sequence;

use crate::crypto::provider;

/// The modulus and the private exponent of a key, the lowest limb first, with room for a carry.
#[derive(Clone, Debug)]
pub(crate) struct SmallRsa {
    modulus: Arc<Number>,
    exponent: Arc<Number>,
    /// The negated inverse of the lowest limb of the modulus (Montgomery).
    inverse: u64,
    /// The signature schemes for which the key may be chosen.
    schemes: &'static [SignatureScheme],
    scheme: SignatureScheme,
}

type Number = [u64; LIMBS];

/// 1024 bits and a limb for the carry of doubling.
const LIMBS: usize = 17;
const BYTES: usize = 128;

impl SmallRsa {
    /// Reads a PKCS #1 key for these schemes. It always signs with PKCS #1 and SHA-256.
    ///
    /// # Panics
    /// The key does not have 1024 bits.
    pub(crate) fn new(key: &PrivateKeyDer<'_>, schemes: &'static [SignatureScheme]) -> Self {
        let (_, sequence) = parse_ber_sequence(key.secret_der()).expect("a PKCS #1 key");
        let part = |index: usize| {
            let content = sequence[index].as_slice().expect("an INTEGER");
            let digits = content.strip_prefix(&[0]).unwrap_or(content);
            assert!(digits.len() <= BYTES, "a key of 1024 bits");
            number(digits)
        };
        let modulus = part(1);
        // Each step doubles the number of correct bits (Newton).
        let inverse = (0..6).fold(1_u64, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(modulus[0].wrapping_mul(inverse)))
        });
        Self {
            modulus: Arc::new(modulus),
            exponent: Arc::new(part(3)),
            inverse: inverse.wrapping_neg(),
            schemes,
            scheme: SignatureScheme::RSA_PKCS1_SHA256,
        }
    }

    /// `base` to the power of the private exponent: square and multiply from the highest bit, in Montgomery form.
    fn power(&self, base: &Number) -> Number {
        let (base, mut result) = (self.shifted(base), self.shifted(&number(&[1])));
        for bit in bits(&self.exponent) {
            result = self.times(&result, &result);
            if bit {
                result = self.times(&result, &base);
            }
        }
        self.times(&result, &number(&[1]))
    }

    /// The number multiplied by 2 to the power of the bits of all limbs.
    fn shifted(&self, number: &Number) -> Number {
        (0..64 * LIMBS).fold(*number, |doubled, _| self.plus(&doubled, &doubled))
    }

    /// The product of both numbers, divided by 2 to the power of the bits of all limbs.
    fn times(&self, one: &Number, other: &Number) -> Number {
        let mut total = [0_u64; LIMBS + 1];
        for digit in other {
            add_product(&mut total, one, *digit);
            // Adds a multiple of the modulus that makes the lowest limb zero.
            let factor = total[0].wrapping_mul(self.inverse);
            add_product(&mut total, &self.modulus, factor);
            total.rotate_left(1);
        }
        let mut product = [0; LIMBS];
        product.copy_from_slice(&total[..LIMBS]);
        self.plus(&product, &[0; LIMBS])
    }

    fn plus(&self, one: &Number, other: &Number) -> Number {
        let mut sum = [0; LIMBS];
        let mut carry = false;
        for index in 0..LIMBS {
            let (partial, first) = one[index].overflowing_add(other[index]);
            let (whole, second) = partial.overflowing_add(u64::from(carry));
            (sum[index], carry) = (whole, first || second);
        }
        let mut less = [0; LIMBS];
        let mut borrow = false;
        for index in 0..LIMBS {
            let (partial, first) = sum[index].overflowing_sub(self.modulus[index]);
            let (whole, second) = partial.overflowing_sub(u64::from(borrow));
            (less[index], borrow) = (whole, first || second);
        }
        if borrow { sum } else { less }
    }
}

impl SigningKey for SmallRsa {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        // The first scheme that the peer offers, as OpenSSL selects it.
        let scheme = offered
            .iter()
            .find(|scheme| self.schemes.contains(scheme))?;
        Some(Box::new(Self {
            scheme: *scheme,
            ..self.clone()
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

impl Signer for SmallRsa {
    /// RSASSA-PKCS1-v1_5 (RFC 8017, 8.2).
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let digest = sha256().hash(message);
        let info = [SHA256_INFO, digest.as_ref()].concat();
        let padding = vec![0xff; BYTES - 3 - info.len()];
        let encoded = [&[0, 1][..], &padding, &[0], &info].concat();
        let signature = self.power(&number(&encoded));
        let bytes = signature.iter().take(BYTES / 8).rev();
        Ok(bytes.flat_map(|limb| limb.to_be_bytes()).collect())
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

fn add_product(total: &mut [u64; LIMBS + 1], one: &Number, digit: u64) {
    let mut carry = 0_u128;
    for (limb, other) in total.iter_mut().zip(one) {
        let sum = u128::from(*limb) + u128::from(*other) * u128::from(digit) + carry;
        (*limb, carry) = (sum as u64, sum >> 64);
    }
    total[LIMBS] += carry as u64;
}

/// A number from big-endian bytes.
fn number(bytes: &[u8]) -> Number {
    let mut number = [0; LIMBS];
    for (index, byte) in bytes.iter().rev().enumerate() {
        number[index / 8] |= u64::from(*byte) << (8 * (index % 8));
    }
    number
}

/// The bits of a number, the highest first.
fn bits(number: &Number) -> impl Iterator<Item = bool> {
    let limbs = number.iter().rev();
    limbs.flat_map(|limb| (0..64).rev().map(move |bit| limb >> bit & 1 == 1))
}

fn sha256() -> &'static dyn Hash {
    let suites = provider().cipher_suites.clone();
    let suite = suites
        .iter()
        .find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)
        .and_then(|suite| suite.tls13());
    suite
        .expect("every provider has this suite")
        .common
        .hash_provider
}

/// The DigestInfo of SHA-256 before its digest.
const SHA256_INFO: &[u8] = &[
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];
