# @summary `[ca]`: requests to the CA.
type Proscenium::Ca = Struct[{
  Optional['edge_answers']                => Boolean,
  Optional['edge_answers_age_max']        => Proscenium::Duration,
  Optional['renewal']                     => Boolean,
  Optional['kind']                        => Enum['puppet-server', 'other'],
  Optional['anonymous_rate']              => Integer[1],
  Optional['anonymous_burst']             => Integer[1],
  Optional['anonymous_rate_per_address']  => Integer[1],
  Optional['anonymous_burst_per_address'] => Integer[1],
  Optional['anonymous_in_flight_max']     => Integer[1],
}]
