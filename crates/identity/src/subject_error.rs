//! Why the subject of a verified certificate is not accepted as an identity.

use crate::certname::CertnameError;
use crate::form::DnFormat;

/// Why the subject of a verified certificate is not accepted as an identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// The bytes are not DER, or not a certificate.
    #[error("the certificate cannot be read")]
    Unreadable,
    /// A part of the subject is malformed, such as an empty RDN or an unexpected tag.
    #[error("the subject cannot be read to its end")]
    Partial,
    /// The type of an extension is not an OID, or is not in its shortest encoding.
    #[error("the certificate has an extension whose type is not an object identifier")]
    ExtensionType,
    /// The subject has no CN.
    #[error("the subject has no CN")]
    NoCn,
    /// The subject has several CNs, and servers differ in which one they pick.
    #[error("the subject has several CNs, and servers differ in which one they use")]
    SeveralCns,
    /// The CN shares an RDN with another attribute, which some servers use as the name.
    #[error("the CN shares an RDN with another attribute, which some servers use as the name")]
    MultiValued,
    /// A CN has the type T61String or UniversalString, a value has bytes that its type does not allow, or a type makes some
    /// server read the whole name in another form.
    #[error("the subject has a value in a type that servers decode differently")]
    StringType,
    /// The type of an attribute is not an OID, or is not in its shortest encoding. Some servers then read the whole name in
    /// another form, or read another attribute.
    #[error("the subject has an attribute whose type is not an object identifier")]
    AttributeType,
    /// A value is longer than X.520 allows: 64 characters in a CN, two letters in a C. Newer servers read such a name
    /// in another form, unless the subject is a single plain CN.
    #[error(
        "the CN has more than 64 characters, or the C is not two letters; servers agree on such a value only in a subject with a single plain CN"
    )]
    Bounds,
    /// A value contains a control character.
    #[error("the subject contains a control character")]
    Control,
    /// The rule is `subject = "puppet"`, and the subject has more than a CN.
    #[error(
        "the subject has {0} RDNs where the Puppet CA writes exactly one CN (subject = \"single-cn\" allows it)"
    )]
    MoreThanCn(usize),
    /// The configuration uses a format in which a reader could not determine where this CN ends.
    #[error("the CN contains {0:?}, which dn_format = \"{1}\" cannot represent without ambiguity")]
    Ambiguous(char, DnFormat),
    /// The CN is not a certname.
    #[error(transparent)]
    Certname(#[from] CertnameError),
}
