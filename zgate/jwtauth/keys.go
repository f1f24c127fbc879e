package jwtauth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

// key is one key, good for one algorithm.
type key struct {
	id   string // "kid"; empty: it has none
	alg  string
	data jwt.VerificationKey // []byte, *rsa.PublicKey or ed25519.PublicKey
}

// keySet is what a source held when it was read. Never changed.
type keySet []key

// find returns the keys that a token with the header alg and kid may be signed with. A key without an id is asked about every
// token, and every key about a token that names none; at most maxTries.
func (s keySet) find(alg, kid string) (found []jwt.VerificationKey) {
	for _, k := range s {
		if k.alg == alg && (k.id == kid || k.id == "" || kid == "") && len(found) < maxTries {
			found = append(found, k.data)
		}
	}
	return found
}

// named reports whether kid, which a token names, can be answered for.
func (s keySet) named(alg, kid string) bool {
	return slices.ContainsFunc(s, func(k key) bool { return k.alg == alg && (k.id == kid || k.id == "" || kid == "") })
}

// parseKeyFile reads the key of HS256, or public keys and certificates in PEM.
func parseKeyFile(b []byte, algs []string) (keySet, error) {
	if slices.Contains(algs, HS256) {
		secret := bytes.TrimRight(b, "\r\n")
		if len(secret) < minSecret {
			return nil, fmt.Errorf("the secret has %d bytes: expected at least %d", len(secret), minSecret)
		}
		return keySet{{alg: HS256, data: secret}}, nil
	}
	var set keySet
	for n := 1; ; n++ {
		block, rest := pem.Decode(b)
		if block == nil {
			break
		}
		b = rest
		public, err := parseBlock(block)
		var k key
		if err == nil {
			k, err = publicKey(public)
		}
		if err != nil {
			return nil, fmt.Errorf("PEM block %d (%s): %w", n, block.Type, err)
		}
		if !slices.Contains(algs, k.alg) {
			return nil, fmt.Errorf("PEM block %d (%s) is for %s: expected one for %v", n, block.Type, k.alg, algs)
		}
		set = append(set, k)
	}
	return set, set.check(algs, 0)
}

func parseBlock(b *pem.Block) (any, error) {
	switch b.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(b.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(b.Bytes)
	case "CERTIFICATE":
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		return c.PublicKey, nil
	default:
		return nil, errors.New("expected a PUBLIC KEY or a CERTIFICATE; a private key belongs to who signs alone")
	}
}

// publicKey decides which algorithm a key is for.
func publicKey(public any) (key, error) {
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p.N.BitLen() < minRSABits {
			return key{}, fmt.Errorf("RSA key of %d bits: expected at least %d", p.N.BitLen(), minRSABits)
		}
		return key{alg: RS256, data: p}, nil
	case ed25519.PublicKey:
		return key{alg: EdDSA, data: p}, nil
	default:
		return key{}, fmt.Errorf("%T: expected an RSA or an Ed25519 key", public)
	}
}

// jwk is a JSON Web Key: RFC 7517, 7518 section 6, 8037.
type jwk struct {
	Type   string   `json:"kty"`
	ID     string   `json:"kid"`
	Use    string   `json:"use"`
	Ops    []string `json:"key_ops"`
	Alg    string   `json:"alg"`
	Curve  string   `json:"crv"`
	N      string   `json:"n"`
	E      string   `json:"e"`
	X      string   `json:"x"`
	Secret string   `json:"k"`
}

// parseJWKS reads a key set. Keys for something else are left out, as RFC 7517 section 5 wants it; secrets says whether keys of
// HS256 are taken.
func parseJWKS(b []byte, algs []string, secrets bool) (keySet, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, errors.New(`not a JSON Web Key Set: expected {"keys":[...]}`) // the cause would hold a piece of it
	}
	if len(doc.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys: expected at most %d", len(doc.Keys), maxKeys)
	}
	var set keySet
	for _, raw := range doc.Keys {
		var j jwk
		if json.Unmarshal(raw, &j) != nil || j.Use != "" && j.Use != "sig" || len(j.Ops) > 0 && !slices.Contains(j.Ops, "verify") {
			continue
		}
		k, err := j.key()
		if err != nil || j.Alg != "" && j.Alg != k.alg || !slices.Contains(algs, k.alg) || k.alg == HS256 && !secrets {
			continue
		}
		k.id = j.ID
		set = append(set, k)
	}
	return set, set.check(algs, len(doc.Keys)-len(set))
}

// check refuses a set of nothing.
func (s keySet) check(algs []string, skipped int) error {
	if len(s) == 0 {
		return fmt.Errorf("no key for %v (%d keys are for something else, too short, or broken)", algs, skipped)
	}
	return nil
}

func (j *jwk) key() (key, error) {
	switch {
	case j.Type == "RSA":
		n, err := decode(j.N)
		if err != nil {
			return key{}, err
		}
		e, err := decode(j.E)
		if err != nil {
			return key{}, err
		}
		exp := new(big.Int).SetBytes(e)
		if len(n) > 2048 || len(e) > 4 || !exp.IsInt64() || exp.Int64() < 3 || exp.Int64() > math.MaxInt32 || exp.Bit(0) == 0 {
			return key{}, errors.New("RSA key out of range")
		}
		return publicKey(&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exp.Int64())})
	case j.Type == "OKP" && j.Curve == "Ed25519":
		x, err := decode(j.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return key{}, errors.New("not an Ed25519 key")
		}
		return publicKey(ed25519.PublicKey(x))
	case j.Type == "oct":
		k, err := decode(j.Secret)
		if err != nil || len(k) < minSecret {
			return key{}, errors.New("secret too short")
		}
		return key{alg: HS256, data: k}, nil
	default:
		return key{}, errors.New("another type of key")
	}
}

func decode(s string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil && len(b) == 0 {
		err = errors.New("empty")
	}
	return b, err
}
