//! Why the subject of a verified certificate is not accepted as an identity.

use crate::certname::CertnameError;
use crate::form::DnFormat;

/// Why a verified certificate's subject is no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// Not DER, or not a certificate.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// Something in the subject is not as it is in every certificate: an empty RDN, a tag that is none of its place.
    #[error("the subject cannot be read to its end")]
    Partial,
    /// An extension whose type is no OID, or not in its shortest form.
    #[error("the certificate has an extension whose type is no object identifier")]
    ExtensionType,
    /// No CN.
    #[error("the subject has no CN")]
    NoCn,
    /// Two servers would pick different ones.
    #[error("the subject has several CNs, and servers differ in which one they use")]
    SeveralCns,
    /// Some servers take the RDN's other attribute for the name.
    #[error("the CN shares an RDN with another attribute, which some servers use as the name")]
    MultiValued,
    /// T61String or UniversalString for a CN, bytes that the type does not allow, or anywhere a type at which some server
    /// takes the whole name for one of another form.
    #[error("the subject has a value in a type that servers decode differently")]
    StringType,
    /// An attribute whose type is no OID, or not in its shortest form: some server takes the whole name for one of another
    /// form, or the attribute for another one.
    #[error("the subject has an attribute whose type is no object identifier")]
    AttributeType,
    /// More than X.520 allows (64 characters in a CN, two letters in a C) where the subject is more than one plain CN: newer
    /// servers take the whole name for one of another form.
    #[error(
        "the CN has more than 64 characters, or the C is not two letters; servers agree on such a value only in a subject with a single plain CN"
    )]
    Bounds,
    /// A control character in some value.
    #[error("the subject contains a control character")]
    Control,
    /// `subject = "puppet"` and there is more than the CN.
    #[error(
        "the subject has {0} RDNs where the Puppet CA writes exactly one CN (subject = \"single-cn\" allows it)"
    )]
    MoreThanCn(usize),
    /// Some server here is told the subject in a format whose readers could not tell where this CN ends.
    #[error("the CN contains {0:?}, which dn_format = \"{1}\" cannot represent without ambiguity")]
    Ambiguous(char, DnFormat),
    /// The CN is no certname.
    #[error(transparent)]
    Certname(#[from] CertnameError),
}
